// A CUDA runtime and a cuBLAS whose kernels do nothing. torch's own CUDA code on the host runs on
// them without a GPU: device queries, the caching allocator, streams, events, autograd's threads,
// and graph capture with its rules. Kernels and fills are counted and not executed. Copies between
// host and device are real, except that a copy of up to 64 bytes to the host, which reads a result
// of kernels, returns numbers that are finite and positive in every type.
//
// Environment variables:
//   EMULATED_GPUS        number of GPUs (1); CUDA_VISIBLE_DEVICES hides some, as in CUDA
//   EMULATED_GIB         memory of each GPU in GiB (16)
//   EMULATED_CAPABILITY  compute capability times ten (80, for which torch does not choose cuDNN)
//   EMULATED_ERROR       CUDA error that each launch, allocation and wait returns, such as 46 or 209
//
// The functions are declared here and not by NVIDIA's headers, of which only types are used, so
// that a function whose arguments do not matter is declared without them.

#include <driver_types.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))
#define DOES_NOTHING(name) \
  API int name(...) { return 0; }
#define IS_NOT_SUPPORTED(name) \
  API int name(...) { return set_error(cudaErrorNotSupported); }

namespace {

std::recursive_mutex mutex;
using Lock = std::lock_guard<std::recursive_mutex>;

struct Graph {
  unsigned long long id = 0;
  long nodes = 0;
  bool is_valid = true;
};
struct Stream {
  Graph* capture = nullptr;
  bool began_capture = false;
};
struct Event {
  Graph* capture = nullptr;
};
struct LaunchConfiguration {
  dim3 grid, block;
  size_t shared_memory;
  void* stream;
};

std::map<std::string, long long> counters;
std::map<void*, Stream> streams;  // the null pointer is the default stream
std::map<char*, size_t> device_memory, pinned_memory;
std::map<void*, void*> cublas_streams;
std::string capture_fault;  // the call that broke the last capture
size_t used_bytes = 0;
int captures_under_way = 0;
unsigned long long last_graph = 0;

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
thread_local std::vector<LaunchConfiguration> configurations;

double setting(const char* name, double otherwise) {
  const char* text = getenv(name);
  return text ? atof(text) : otherwise;
}

int num_devices() {
  int installed = static_cast<int>(setting("EMULATED_GPUS", 1));
  const char* visible = getenv("CUDA_VISIBLE_DEVICES");
  if (!visible) return installed;
  std::string text(visible);
  if (text.empty() || text[0] == '-') return 0;
  return std::min<int>(installed, 1 + std::count(text.begin(), text.end(), ','));
}

size_t total_bytes() { return static_cast<size_t>(setting("EMULATED_GIB", 16) * (1ull << 30)); }
int capability() { return static_cast<int>(setting("EMULATED_CAPABILITY", 80)); }
size_t whole_pages(size_t size) { return (std::max<size_t>(size, 1) + 4095) & ~size_t{4095}; }

cudaError_t set_error(cudaError_t error) { return last_error = error; }

cudaError_t injected_error() {
  auto error = static_cast<cudaError_t>(static_cast<int>(setting("EMULATED_ERROR", 0)));
  return error == cudaSuccess ? error : set_error(error);
}

// Invalidate all captures: CUDA forbids the call while a stream captures.
cudaError_t break_captures(const char* call, cudaError_t error) {
  capture_fault = call;
  counters["capture_faults"]++;
  for (auto& [handle, stream] : streams)
    if (stream.capture) stream.capture->is_valid = false;
  return set_error(error);
}

// A call that waits for the device or changes its memory.
cudaError_t unsafe_call(const char* call) {
  Lock lock(mutex);
  if (!captures_under_way || capture_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  return break_captures(call, cudaErrorStreamCaptureUnsupported);
}

cudaError_t wait(const char* call) {
  Lock lock(mutex);
  if (auto error = unsafe_call(call)) return error;
  counters["synchronisations"]++;
  return injected_error();
}

// Work on a stream: a node of the stream's capture, or executed at once. Work on the default
// stream during a capture is refused; CUDA refuses it only if the capturing stream is a blocking
// one, and otherwise leaves it out of the graph, which no step of a training intends.
cudaError_t enqueue(void* handle, const char* call, const char* counter) {
  Lock lock(mutex);
  if (!handle && captures_under_way) return break_captures(call, cudaErrorStreamCaptureImplicit);
  counters[counter]++;
  if (Graph* graph = streams[handle].capture) graph->nodes++;
  return cudaSuccess;
}

bool is_in(const std::map<char*, size_t>& memory, const void* pointer) {
  auto address = const_cast<char*>(static_cast<const char*>(pointer));
  auto next = memory.upper_bound(address);
  if (next == memory.begin()) return false;
  auto [start, size] = *std::prev(next);
  return address < start + size;
}

cudaError_t allocate(void** pointer, size_t size) {
  Lock lock(mutex);
  *pointer = nullptr;
  if (auto error = injected_error()) return error;
  if (used_bytes + size > total_bytes()) return set_error(cudaErrorMemoryAllocation);
  void* start = mmap(nullptr, whole_pages(size), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return set_error(cudaErrorMemoryAllocation);
  device_memory[static_cast<char*>(start)] = size;
  used_bytes += size;
  *pointer = start;
  return cudaSuccess;
}

void copy(void* target, const void* source, size_t size) {
  Lock lock(mutex);
  bool to_device = is_in(device_memory, target), from_device = is_in(device_memory, source);
  if (to_device && !from_device) counters["copies_to_device"]++;
  if (!to_device && from_device) counters["copies_to_host"]++;
  bool is_result = !to_device && from_device && size <= 64;
  is_result ? memset(target, 0x3f, size) : memcpy(target, source, size);
}

cudaError_t launch(dim3 grid, dim3 block, void* stream) {
  if (auto error = injected_error()) return error;
  size_t threads = size_t{block.x} * block.y * block.z;
  bool is_valid = grid.x && grid.y && grid.z && grid.y < 65536 && grid.z < 65536;
  if (!is_valid || !threads || threads > 1024) return set_error(cudaErrorInvalidConfiguration);
  return enqueue(stream, "a kernel on the default stream", "kernels");
}

int product(void* handle) {  // a status of cuBLAS: 13 is CUBLAS_STATUS_EXECUTION_FAILED
  Lock lock(mutex);
  if (injected_error()) return 13;
  return enqueue(cublas_streams[handle], "a product on the default stream", "kernels") ? 13 : 0;
}

}  // namespace

// ---- The tests' own calls

API long long emulated_counter(const char* name) {
  Lock lock(mutex);
  return counters[name];
}
API void emulated_reset() {
  Lock lock(mutex);
  counters.clear();
}
API const char* emulated_capture_fault() { return capture_fault.c_str(); }

// ---- Devices and errors

// c10::cuda::hasPrimaryContext asks the driver, which is absent.
API bool _ZN3c104cuda17hasPrimaryContextEa(signed char) { return true; }

API int cudaGetDeviceCount(int* count) {
  *count = num_devices();
  return *count ? cudaSuccess : set_error(cudaErrorNoDevice);
}
API int cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
API int cudaSetDevice(int device) {
  if (device < 0 || device >= num_devices()) return set_error(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}
API int cudaDriverGetVersion(int* version) {
  *version = 13020;
  return cudaSuccess;
}
API int cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
API int cudaGetLastError() {
  auto error = last_error;
  last_error = cudaSuccess;
  return error;
}
API int cudaPeekAtLastError() { return last_error; }
API const char* cudaGetErrorString(cudaError_t error) {
  switch (static_cast<int>(error)) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorDevicesUnavailable: return "CUDA-capable device(s) is/are busy or unavailable";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorNoKernelImageForDevice:
      return "no kernel image is available for execution on the device";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureImplicit:
      return "operation would make the legacy stream depend on a capturing blocking stream";
  }
  return "an emulated error";
}
API const char* cudaGetErrorName(cudaError_t error) {
  static thread_local char name[32];
  snprintf(name, sizeof name, "cudaError%d", static_cast<int>(error));
  return name;
}

API int cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  static const std::map<int, int> values = {
      {cudaDevAttrMaxThreadsPerBlock, 1024},
      {cudaDevAttrMaxBlockDimX, 1024},
      {cudaDevAttrMaxBlockDimY, 1024},
      {cudaDevAttrMaxBlockDimZ, 64},
      {cudaDevAttrMaxGridDimX, 2147483647},
      {cudaDevAttrMaxGridDimY, 65535},
      {cudaDevAttrMaxGridDimZ, 65535},
      {cudaDevAttrMaxSharedMemoryPerBlock, 49152},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, 232448},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 233472},
      {cudaDevAttrWarpSize, 32},
      {cudaDevAttrMultiProcessorCount, 132},
      {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
      {cudaDevAttrMaxBlocksPerMultiprocessor, 32},
      {cudaDevAttrMaxRegistersPerBlock, 65536},
      {cudaDevAttrMaxRegistersPerMultiprocessor, 65536},
      {cudaDevAttrL2CacheSize, 50 << 20},
      {cudaDevAttrUnifiedAddressing, 1},
      {cudaDevAttrConcurrentKernels, 1},
      {cudaDevAttrComputeCapabilityMajor, capability() / 10},
      {cudaDevAttrComputeCapabilityMinor, capability() % 10},
  };
  auto found = values.find(attribute);
  *value = found == values.end() ? 0 : found->second;
  return cudaSuccess;
}
API int cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  snprintf(properties->name, sizeof properties->name, "emulated GPU");
  properties->uuid.bytes[0] = static_cast<char>(device + 1);
  properties->totalGlobalMem = total_bytes();
  properties->major = capability() / 10;
  properties->minor = capability() % 10;
  properties->warpSize = 32;
  properties->multiProcessorCount = 132;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->maxBlocksPerMultiProcessor = 32;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 2147483647;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->sharedMemPerBlock = 49152;
  properties->sharedMemPerBlockOptin = 232448;
  properties->sharedMemPerMultiprocessor = 233472;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->l2CacheSize = 50 << 20;
  properties->textureAlignment = 512;
  properties->unifiedAddressing = properties->concurrentKernels = 1;
  return cudaSuccess;
}
API int cudaDeviceGetPCIBusId(char* text, int size, int device) {
  snprintf(text, size, "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}
API int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
API int cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}
API int cudaDeviceSynchronize() { return wait("cudaDeviceSynchronize"); }
API int cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned,
                                         unsigned long long, int* status) {
  *function = nullptr;
  if (status) *status = 1;  // cudaDriverEntryPointSymbolNotFound
  return cudaSuccess;
}
API int cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return cudaSuccess;
}
DOES_NOTHING(cudaDeviceEnablePeerAccess)
DOES_NOTHING(cudaDeviceGetDefaultMemPool)
DOES_NOTHING(cudaProfilerStart)
DOES_NOTHING(cudaProfilerStop)
IS_NOT_SUPPORTED(cudaIpcGetMemHandle)
IS_NOT_SUPPORTED(cudaIpcOpenMemHandle)
IS_NOT_SUPPORTED(cudaIpcGetEventHandle)
IS_NOT_SUPPORTED(cudaIpcOpenEventHandle)

// ---- Memory

API int cudaMalloc(void** pointer, size_t size) {
  if (auto error = unsafe_call("cudaMalloc")) return error;
  Lock lock(mutex);
  counters["allocations"]++;
  return allocate(pointer, size);
}
API int cudaMallocAsync(void** pointer, size_t size, void*) { return allocate(pointer, size); }
API int cudaMallocManaged(void** pointer, size_t size, unsigned) { return allocate(pointer, size); }
API int cudaFree(void* pointer) {
  if (!pointer) return cudaSuccess;
  if (auto error = unsafe_call("cudaFree")) return error;
  Lock lock(mutex);
  auto block = device_memory.find(static_cast<char*>(pointer));
  if (block == device_memory.end()) return set_error(cudaErrorInvalidValue);
  used_bytes -= block->second;
  munmap(pointer, whole_pages(block->second));
  device_memory.erase(block);
  return cudaSuccess;
}
API int cudaFreeAsync(void* pointer, void*) { return cudaFree(pointer); }
API int cudaMemGetInfo(size_t* free_bytes, size_t* all_bytes) {
  Lock lock(mutex);
  *all_bytes = total_bytes();
  *free_bytes = *all_bytes - used_bytes;
  return cudaSuccess;
}
API int cudaHostAlloc(void** pointer, size_t size, unsigned) {
  Lock lock(mutex);
  *pointer = aligned_alloc(4096, whole_pages(size));
  pinned_memory[static_cast<char*>(*pointer)] = size;
  return cudaSuccess;
}
API int cudaMallocHost(void** pointer, size_t size) { return cudaHostAlloc(pointer, size, 0); }
API int cudaFreeHost(void* pointer) {
  Lock lock(mutex);
  pinned_memory.erase(static_cast<char*>(pointer));
  free(pointer);
  return cudaSuccess;
}
API int cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  Lock lock(mutex);
  *attributes = {};
  if (is_in(device_memory, pointer)) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->devicePointer = const_cast<void*>(pointer);
  } else if (is_in(pinned_memory, pointer)) {
    attributes->type = cudaMemoryTypeHost;
    attributes->hostPointer = const_cast<void*>(pointer);
  }
  return cudaSuccess;
}
API int cudaMemcpy(void* target, const void* source, size_t size, cudaMemcpyKind) {
  if (auto error = wait("cudaMemcpy")) return error;
  copy(target, source, size);
  return cudaSuccess;
}
API int cudaMemcpyAsync(void* target, const void* source, size_t size, cudaMemcpyKind,
                        void* stream) {
  if (auto error = enqueue(stream, "a copy on the default stream", "copies")) return error;
  copy(target, source, size);
  return cudaSuccess;
}
API int cudaMemset(...) { return wait("cudaMemset"); }
API int cudaMemsetAsync(void*, int, size_t, void* stream) {
  return enqueue(stream, "a fill on the default stream", "fills");
}
DOES_NOTHING(cudaHostRegister)
DOES_NOTHING(cudaHostUnregister)

// ---- Streams and events

API int cudaStreamCreateWithPriority(void** stream, unsigned, int) {
  Lock lock(mutex);
  *stream = malloc(1);
  streams[*stream] = {};
  return cudaSuccess;
}
API int cudaStreamCreateWithFlags(void** stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
API int cudaStreamCreate(void** stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
API int cudaStreamDestroy(void* stream) {
  Lock lock(mutex);
  streams.erase(stream);
  free(stream);
  return cudaSuccess;
}
API int cudaStreamGetPriority(void*, int* priority) {
  *priority = 0;
  return cudaSuccess;
}
API int cudaStreamQuery(void*) { return unsafe_call("cudaStreamQuery"); }
API int cudaStreamSynchronize(void*) { return wait("cudaStreamSynchronize"); }
API int cudaLaunchHostFunc(void*, void (*function)(void*), void* data) {
  function(data);
  return cudaSuccess;
}
API int cudaStreamAddCallback(void* stream, void (*function)(void*, int, void*), void* data,
                              unsigned) {
  function(stream, cudaSuccess, data);
  return cudaSuccess;
}
API int cudaEventCreateWithFlags(void** event, unsigned) {
  *event = new Event;
  return cudaSuccess;
}
API int cudaEventCreate(void** event) { return cudaEventCreateWithFlags(event, 0); }
API int cudaEventDestroy(void* event) {
  delete static_cast<Event*>(event);
  return cudaSuccess;
}
API int cudaEventRecord(void* event, void* stream) {
  Lock lock(mutex);
  static_cast<Event*>(event)->capture = streams[stream].capture;
  return cudaSuccess;
}
API int cudaEventRecordWithFlags(void* event, void* stream, unsigned) {
  return cudaEventRecord(event, stream);
}
API int cudaEventQuery(void* event) {
  if (static_cast<Event*>(event)->capture) return set_error(cudaErrorCapturedEvent);
  return unsafe_call("cudaEventQuery");
}
API int cudaEventSynchronize(void*) { return wait("cudaEventSynchronize"); }
API int cudaEventElapsedTime(float* milliseconds, void*, void*) {
  *milliseconds = 0.125f;
  return cudaSuccess;
}
API int cudaStreamWaitEvent(void* handle, void* event, unsigned) {
  Lock lock(mutex);
  Graph* awaited = static_cast<Event*>(event)->capture;
  Stream& stream = streams[handle];
  if (awaited && !handle) {
    return break_captures("the default stream waits for a capture", cudaErrorStreamCaptureImplicit);
  }
  if (awaited && !stream.capture) stream.capture = awaited;
  if (!awaited && stream.capture) {
    return break_captures("a capture waits for earlier work", cudaErrorStreamCaptureIsolation);
  }
  return cudaSuccess;
}

// ---- Graphs

API int cudaStreamBeginCapture(void* handle, cudaStreamCaptureMode) {
  Lock lock(mutex);
  Stream& stream = streams[handle];
  if (!handle || stream.capture) return set_error(cudaErrorIllegalState);
  stream.capture = new Graph{++last_graph};
  stream.began_capture = true;
  captures_under_way++;
  counters["captures"]++;
  return cudaSuccess;
}
API int cudaStreamEndCapture(void* handle, void** graph) {
  Lock lock(mutex);
  *graph = nullptr;
  if (!streams[handle].began_capture) return set_error(cudaErrorIllegalState);
  Graph* captured = streams[handle].capture;
  for (auto& [other, stream] : streams)
    if (stream.capture == captured) stream = {};
  captures_under_way--;
  if (!captured->is_valid) return set_error(cudaErrorStreamCaptureInvalidated);
  *graph = captured;
  return cudaSuccess;
}
static cudaStreamCaptureStatus capture_status(const Graph* graph) {
  if (!graph) return cudaStreamCaptureStatusNone;
  return graph->is_valid ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusInvalidated;
}
API int cudaStreamIsCapturing(void* handle, cudaStreamCaptureStatus* status) {
  Lock lock(mutex);
  *status = capture_status(streams[handle].capture);
  return cudaSuccess;
}
API int cudaStreamGetCaptureInfo(void* handle, cudaStreamCaptureStatus* status,
                                 unsigned long long* id, void** graph, void** dependencies,
                                 void** edges, size_t* count) {
  Lock lock(mutex);
  Graph* capture = streams[handle].capture;
  *status = capture_status(capture);
  if (id) *id = capture ? capture->id : 0;
  if (graph) *graph = capture;
  if (dependencies) *dependencies = nullptr;
  if (edges) *edges = nullptr;
  if (count) *count = 0;
  return cudaSuccess;
}
API int cudaGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  *executable = graph;
  return cudaSuccess;
}
API int cudaGraphInstantiate(void** executable, void* graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(executable, graph, flags);
}
API int cudaGraphLaunch(void* executable, void*) {
  if (auto error = injected_error()) return error;
  Lock lock(mutex);
  counters["replays"]++;
  counters["replayed_nodes"] += static_cast<Graph*>(executable)->nodes;
  return cudaSuccess;
}
API int cudaGraphGetNodes(void* graph, void* nodes, size_t* count) {
  if (!nodes) *count = static_cast<Graph*>(graph)->nodes;
  return cudaSuccess;
}
DOES_NOTHING(cudaGraphDestroy)
DOES_NOTHING(cudaGraphExecDestroy)
DOES_NOTHING(cudaGraphRetainUserObject)
DOES_NOTHING(cudaUserObjectCreate)
DOES_NOTHING(cudaUserObjectRelease)
DOES_NOTHING(cudaStreamUpdateCaptureDependencies)
IS_NOT_SUPPORTED(cudaGraphAddNode)
IS_NOT_SUPPORTED(cudaGraphConditionalHandleCreate)

// ---- Kernels

API void** __cudaRegisterFatBinary(void*) {
  static void* handle[4];
  return handle;
}
DOES_NOTHING(__cudaRegisterFatBinaryEnd)
DOES_NOTHING(__cudaUnregisterFatBinary)
DOES_NOTHING(__cudaRegisterFunction)
DOES_NOTHING(__cudaRegisterVar)
API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
API int __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  auto configuration = configurations.back();
  configurations.pop_back();
  *grid = configuration.grid;
  *block = configuration.block;
  *shared = configuration.shared_memory;
  *static_cast<void**>(stream) = configuration.stream;
  return cudaSuccess;
}
API int __cudaGetKernel(const void** kernel, const void* function) {
  *kernel = function;
  return cudaSuccess;
}
API int cudaLaunchKernel(const void*, dim3 grid, dim3 block, void**, size_t, void* stream) {
  return launch(grid, block, stream);
}
API int __cudaLaunchKernel(void*, dim3 grid, dim3 block, void**, size_t, void* stream) {
  return launch(grid, block, stream);
}
API int cudaLaunchKernelExC(const cudaLaunchConfig_t* configuration, const void*, void**) {
  return launch(configuration->gridDim, configuration->blockDim, configuration->stream);
}
API int cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->maxDynamicSharedSizeBytes = 232448;
  attributes->binaryVersion = attributes->ptxVersion = capability();
  return cudaSuccess;
}
API int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int size, size_t) {
  *blocks = size > 1024 ? 1 : 2048 / std::max(size, 1);
  return cudaSuccess;
}
API int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* kernel,
                                                               int size, size_t shared, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, size, shared);
}
DOES_NOTHING(cudaFuncSetAttribute)
DOES_NOTHING(cudaKernelSetAttributeForDevice)

// ---- cuBLAS: statuses, of which 0 is success

API int cublasCreate_v2(void** handle) {
  if (unsafe_call("cublasCreate")) return 1;
  *handle = malloc(1);
  return 0;
}
API int cublasSetStream_v2(void* handle, void* stream) {
  Lock lock(mutex);
  cublas_streams[handle] = stream;
  return 0;
}
API int cublasGetStream_v2(void* handle, void** stream) {
  Lock lock(mutex);
  *stream = cublas_streams[handle];
  return 0;
}
DOES_NOTHING(cublasDestroy_v2)
DOES_NOTHING(cublasSetWorkspace_v2)
DOES_NOTHING(cublasSetMathMode)
DOES_NOTHING(cublasSetPointerMode_v2)
DOES_NOTHING(cublasSetSmCountTarget)
API int cublasGetMathMode(void*, int* mode) { return *mode = 0; }
API int cublasGetPointerMode_v2(void*, int* mode) { return *mode = 0; }

#define IS_A_PRODUCT(name) \
  API int name(void* handle, ...) { return product(handle); }
IS_A_PRODUCT(cublasSgemm_v2)
IS_A_PRODUCT(cublasDgemm_v2)
IS_A_PRODUCT(cublasSgemmEx)
IS_A_PRODUCT(cublasGemmEx)
IS_A_PRODUCT(cublasGemmStridedBatchedEx)
IS_A_PRODUCT(cublasSgemmStridedBatched)
IS_A_PRODUCT(cublasDgemmStridedBatched)
IS_A_PRODUCT(cublasSgemv_v2)
IS_A_PRODUCT(cublasDgemv_v2)
IS_A_PRODUCT(cublasSdot_v2)
IS_A_PRODUCT(cublasDdot_v2)
IS_A_PRODUCT(cublasDotEx)

API size_t cublasLtGetVersion() { return 130200; }
API int cublasLtMatmul(void*, void*, const void*, const void*, void*, const void*, void*,
                       const void*, const void*, void*, void*, void*, const void*, void*, size_t,
                       void* stream) {
  if (injected_error()) return 13;
  return enqueue(stream, "a product on the default stream", "kernels") ? 13 : 0;
}
API int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int,
                                       void* result, int* count) {
  memset(result, 0, 80);  // an algorithm (64 bytes), its workspace, and a status of success
  *count = 1;
  return 0;
}
#define CREATES_A_DESCRIPTOR(name)    \
  API int name(void** descriptor, ...) { \
    *descriptor = malloc(1);          \
    return 0;                         \
  }
#define FREES_A_DESCRIPTOR(name) \
  API int name(void* descriptor) { \
    free(descriptor);            \
    return 0;                    \
  }
CREATES_A_DESCRIPTOR(cublasLtMatmulDescCreate)
CREATES_A_DESCRIPTOR(cublasLtMatmulPreferenceCreate)
CREATES_A_DESCRIPTOR(cublasLtMatrixLayoutCreate)
FREES_A_DESCRIPTOR(cublasLtMatmulDescDestroy)
FREES_A_DESCRIPTOR(cublasLtMatmulPreferenceDestroy)
FREES_A_DESCRIPTOR(cublasLtMatrixLayoutDestroy)
DOES_NOTHING(cublasLtMatmulDescSetAttribute)
DOES_NOTHING(cublasLtMatmulPreferenceSetAttribute)
DOES_NOTHING(cublasLtMatrixLayoutSetAttribute)
