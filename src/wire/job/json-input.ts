// Refuses inputs of jobs that JSON would change silently. Also runs in browsers, unlike json.ts, which converts
// outputs.

/** Nesting depth of the fast path; deeper values are rare and may be cycles. */
const QUICK_DEPTH = 64;

/** Advice by tag, for objects that JSON turns into texts or empties. */
const ADVICE: Readonly<Record<string, string>> = {
  Date: 'send its toISOString(), or its getTime()',
  URL: 'send its href',
  Map: 'send Object.fromEntries(map)',
  Set: 'send Array.from(set)',
  Promise: 'await it',
  Error: 'send its message',
  RegExp: 'send its source',
};

/**
 * Members that are undefined may be left out. An object with a `toJSON` of its own is what that returns. @throws TypeError
 * with the path of a value that JSON does not keep, such as NaN, a Map or a Date, and what `toJSON` and getters throw
 */
export function requireJsonInput(input: unknown): void {
  if (isPlain(input, 0)) return;
  /** Paths of the visited objects. */
  const paths = new Map<unknown, string>();
  JSON.stringify({ input }, function (this: object, key: string, value: unknown) {
    const path = key === '' && paths.size === 0 ? '' : `${paths.get(this)}${formatKey(key, this)}`;
    const given: unknown = Reflect.get(this, key);
    const isObject = typeof given === 'object' && given !== null;
    const fault = findFault(value, this) ?? (isObject ? findObjectFault(given) : undefined);
    if (fault !== undefined) throw new TypeError(`${path.slice(1)} is not JSON: ${fault}`);
    if (typeof value === 'object' && value !== null) paths.set(value, path);
    return value;
  });
}

/** Native JSON.stringify keeps everything. */
function isPlain(value: unknown, depth: number): boolean {
  if (typeof value === 'string' || typeof value === 'boolean' || value === null) return true;
  if (typeof value === 'number') return Number.isFinite(value);
  if (typeof value !== 'object' || depth > QUICK_DEPTH || 'toJSON' in value) return false;
  if (Array.isArray(value)) {
    // Not `every`, which skips holes.
    for (let i = 0; i < value.length; i++) if (!isPlain(value[i], depth + 1)) return false;
    return true;
  }
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return false;
  return Object.values(value).every((each) => each === undefined || isPlain(each, depth + 1));
}

function formatKey(key: string, holder: object): string {
  if (Array.isArray(holder)) return `[${key}]`;
  return /^[A-Za-z_$][\w$]*$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`;
}

/** Why JSON does not keep the value; undefined if it does. */
function findFault(value: unknown, holder: object): string | undefined {
  switch (typeof value) {
    case 'number':
      return Number.isFinite(value) ? undefined : String(value);
    case 'bigint':
      return 'a BigInt (send it as a string)';
    case 'undefined':
      return Array.isArray(holder) ? 'undefined' : undefined;
    case 'function':
    case 'symbol':
      return `a ${typeof value}`;
    default:
      return typeof value === 'object' && value !== null ? findObjectFault(value) : undefined;
  }
}

function findObjectFault(value: object): string | undefined {
  const tag = Object.prototype.toString.call(value).slice('[object '.length, -1);
  const advice = Object.hasOwn(ADVICE, tag) ? ADVICE[tag] : undefined;
  if (advice !== undefined) return `a ${tag} (${advice})`;
  if (ArrayBuffer.isView(value) || tag === 'ArrayBuffer') {
    return `a ${tag} (send Array.from(it), or its bytes as base64)`;
  }
  const isBox = tag === 'Number' || tag === 'String' || tag === 'Boolean';
  const isOpaque = Object.keys(value).length === 0 && !Array.isArray(value) && !isBox;
  if (!isOpaque || 'toJSON' in value || isRecord(value)) return undefined;
  return `a ${value.constructor?.name || tag} without enumerable members`;
}

/** The value is a plain object, of this realm or another. */
function isRecord(value: object): boolean {
  const prototype: object | null = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}
