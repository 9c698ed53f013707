// The library of NVIDIA's driver (libcuda.so.1): functions that torch looks up when it loads its
// compiler of kernels, and calls only to compile kernels at run time.

#define DOES_NOTHING(name) \
  extern "C" int name(...) { return 0; }

extern "C" int cuCtxGetCurrent(void** context) {
  static char placeholder;
  *context = &placeholder;
  return 0;
}
extern "C" int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* is_active) {
  *flags = 0;
  *is_active = 1;
  return 0;
}
extern "C" int cuGetErrorString(int, const char** text) {
  *text = "an error of the emulated driver";
  return 0;
}
extern "C" int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
DOES_NOTHING(cuCtxGetDevice)
DOES_NOTHING(cuCtxGetLimit)
DOES_NOTHING(cuCtxSetCurrent)
DOES_NOTHING(cuCtxSetLimit)
DOES_NOTHING(cuDeviceGet)
DOES_NOTHING(cuDeviceGetAttribute)
DOES_NOTHING(cuDevicePrimaryCtxRetain)
DOES_NOTHING(cuFuncGetAttribute)
DOES_NOTHING(cuFuncSetAttribute)
DOES_NOTHING(cuFuncSetCacheConfig)
DOES_NOTHING(cuLaunchCooperativeKernel)
DOES_NOTHING(cuLaunchKernel)
DOES_NOTHING(cuLaunchKernelEx)
DOES_NOTHING(cuLinkAddData_v2)
DOES_NOTHING(cuLinkComplete)
DOES_NOTHING(cuLinkCreate_v2)
DOES_NOTHING(cuModuleGetFunction)
DOES_NOTHING(cuModuleLoad)
DOES_NOTHING(cuModuleLoadData)
DOES_NOTHING(cuModuleLoadDataEx)
DOES_NOTHING(cuModuleUnload)
DOES_NOTHING(cuOccupancyMaxActiveBlocksPerMultiprocessor)
DOES_NOTHING(cuOccupancyMaxActiveClusters)
DOES_NOTHING(cuPointerGetAttribute)
DOES_NOTHING(cuTensorMapEncodeIm2col)
DOES_NOTHING(cuTensorMapEncodeTiled)
