// Numbers as people read them: the same words as nas/report/units.py.

const PREFIXES = ["", "k", "M", "G", "T", "P"];

/** A value without its unit, and its standard error where there is one. */
function amount(value, unit = "", error = NaN) {
  if (!Number.isFinite(value)) return "";
  const bar = Number.isFinite(error);
  if (unit === "fraction") return percent(value) + (bar ? ` ± ${percent(error)}` : "");
  if (error > 0 && error < 1000 && Math.abs(value) < 1000) {
    const places = Math.max(0, 1 - Math.floor(Math.log10(error)));
    return `${value.toFixed(places)} ± ${error.toFixed(places)}`.replace("-", "−");
  }
  const shown = (Number.isInteger(value) || Math.abs(value) >= 1000 ? human(value) : digits(value)).replace("-", "−");
  return shown + (bar && error > 0 ? ` ± ${error >= 1000 ? human(error) : digits(error, 2)}` : "");
}

/** A difference with its sign; of fractions in points of a hundred. */
function difference(value, unit = "", error = NaN) {
  const [scale, places] = unit === "fraction" ? [100, 1] : [1, 3];
  const sign = value < 0 ? "−" : "+";
  const shown = sign + Math.abs(scale * value).toFixed(places);
  return Number.isFinite(error) ? `${shown} ± ${(scale * error).toFixed(places)}` : shown;
}

function percent(fraction) {
  return (100 * fraction).toFixed(1);
}

/** A count with a prefix of 1000, in three digits: 1234567 is "1.23 M". */
function human(value) {
  if (Math.abs(value) < 1000 && Number.isInteger(value)) return String(value);
  for (const prefix of PREFIXES) {
    const size = Math.abs(value);
    const decimals = size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
    const shown = value.toFixed(decimals);
    if (Math.abs(Number(shown)) < 1000 || prefix === "P") return `${shown} ${prefix}`.trim();
    value /= 1000;
  }
}

/** A quantity in three significant digits, written out: 0.0123, 1.23, 12300. */
function digits(value, count = 3) {
  if (value === 0 || !Number.isFinite(value)) return value.toFixed(0);
  const rounded = Number(value.toPrecision(count));
  return rounded.toFixed(Math.max(0, count - 1 - Math.floor(Math.log10(Math.abs(rounded)))));
}

/** A time in its two largest units: "47 s", "3 min 20 s", "2 h 05 min", "3 d 04 h". */
function duration(seconds) {
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${String(whole % 60).padStart(2, "0")} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${String(hours % 24).padStart(2, "0")} h`;
}

/** A tick of an axis. */
function tick(value) {
  const shown = Math.abs(value) >= 1000 ? human(value).replace(".00", "") : String(Number(value.toPrecision(6)));
  return shown.replace("-", "−");
}

/** What stands above a cost or metric that is no objective. */
function header(name) {
  const known = { macs: "MACs", attention_macs: "MACs of scores and aggregation", kv_cache_bytes_per_token: "KV B/token" };
  return known[name] ?? name.replaceAll("_", " ");
}
