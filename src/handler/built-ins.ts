// Detects whether a job has changed the built-ins of its thread, because the next job would inherit
// the change. Checks for replaced or deleted functions and getters, and for members added to
// prototypes.
//
// `process`, `console`, module state and new global variables belong to the handler. Libraries
// change them for good reasons while jobs run, so they are not checked.
import { compileFunction } from 'node:vm';

const {
  apply,
  getOwnPropertyDescriptor,
  getPrototypeOf,
  isExtensible,
  ownKeys,
  get: readProperty,
} = Reflect;
const objectPrototype = Object.prototype;
const arrayPrototype = Array.prototype;
const { get: getEntry } = Map.prototype;
const { toString: readSource } = Function.prototype;

/**
 * The language's own built-ins, and those of Node on which much depends. Node loads its other
 * globals, such as `Response`, on first access, which takes megabytes, so they are not watched.
 */
const WATCHED_GLOBALS = [
  ...['Object', 'Function', 'Error', 'Uint8Array', 'Promise'],
  ...['AggregateError', 'Array', 'ArrayBuffer', 'AsyncDisposableStack', 'Atomics', 'BigInt'],
  ...['BigInt64Array', 'BigUint64Array', 'Boolean', 'DataView', 'Date', 'DisposableStack'],
  ...['EvalError', 'FinalizationRegistry', 'Float16Array', 'Float32Array'],
  ...['Float64Array', 'Int16Array', 'Int32Array', 'Int8Array', 'Intl', 'Iterator'],
  ...['JSON', 'Map', 'Math', 'Number', 'Proxy', 'RangeError'],
  ...['ReferenceError', 'Reflect', 'RegExp', 'Set', 'SharedArrayBuffer', 'String'],
  ...['SuppressedError', 'Symbol', 'SyntaxError', 'TypeError', 'URIError', 'Uint16Array'],
  ...['Uint32Array', 'Uint8ClampedArray', 'WeakMap', 'WeakRef', 'WeakSet'],
  ...['decodeURI', 'decodeURIComponent', 'encodeURI', 'encodeURIComponent', 'escape', 'eval'],
  ...['isFinite', 'isNaN', 'parseFloat', 'parseInt', 'unescape'],
  ...['AbortController', 'AbortSignal', 'Buffer', 'DOMException', 'Event', 'EventTarget'],
  ...['TextDecoder', 'TextEncoder', 'URL', 'URLSearchParams', 'atob', 'btoa', 'clearImmediate'],
  ...['clearInterval', 'clearTimeout', 'fetch', 'queueMicrotask', 'setImmediate'],
  ...['setInterval', 'setTimeout', 'structuredClone'],
];

/** `Error.prepareStackTrace` formats stacks; libraries set it for a moment. */
const SKIPPED_KEY = 'prepareStackTrace';

interface KnownGetter {
  readonly holder: object;
  readonly key: PropertyKey;
  getter: unknown;
}

/** A prototype whose additions would reach all objects of a kind. */
interface KnownShape {
  readonly holder: object;
  readonly parent: object | null;
}

export class BuiltInWatch {
  /** The objects to watch, each with its path: `Array.prototype`. */
  readonly #paths = new Map<object, string>();
  readonly #parents: [string, object | null][] = [];
  #values = new ValueComparison([]);
  #getters: KnownGetter[] = [];
  #shapes: KnownShape[] = [];

  /** Finds the built-ins; it must run before any code of the handler does. */
  constructor() {
    for (const name of WATCHED_GLOBALS) this.#explore(Reflect.get(globalThis, name), name);
    for (const [path, prototype] of listHiddenPrototypes()) this.#explore(prototype, path);
    for (const [path, parent] of this.#parents.splice(0)) this.#explore(parent, path);
  }

  /** Accepts the built-ins as they are now: the module and its setup may change them. */
  settle(): void {
    const values: KnownValue[] = [];
    this.#getters = [];
    const watch = (holder: object, key: PropertyKey) => {
      const property = getOwnPropertyDescriptor(holder, key);
      if (property === undefined || !isChangeable(property) || key === SKIPPED_KEY) return;
      const { get: getter, value } = property;
      if (getter && isWorthWatching(holder, getter)) this.#getters.push({ holder, key, getter });
      if (typeof value === 'function' || this.#paths.has(value))
        values.push({ holder, key, value });
    };
    for (const name of WATCHED_GLOBALS) watch(globalThis, name);
    for (const holder of this.#paths.keys()) for (const key of ownKeys(holder)) watch(holder, key);
    this.#values = new ValueComparison(values);
    this.#shapes = [...this.#paths.keys()]
      .filter((holder) => isPrototype(holder) && !hasEnumerable(holder))
      .map((holder) => ({ holder, parent: getPrototypeOf(holder) }));
  }

  /**
   * The path of a built-in that has changed since `settle`: `JSON.stringify`. Undefined if all are the
   * same. It uses nothing that a handler can replace.
   */
  findChange(): string | undefined {
    try {
      const value = this.#values.findDifference();
      if (value) return this.#name(value);
      return this.#findGetter() ?? this.#findAddition();
    } catch {
      // The value was replaced by a getter that throws.
      return 'a built-in, which now throws';
    }
  }

  #findGetter(): string | undefined {
    const getters = this.#getters;
    for (let index = 0; index < getters.length; index += 1) {
      const known = getters[index];
      if (known === undefined) continue;
      const found = getOwnPropertyDescriptor(known.holder, known.key);
      if (found?.get === known.getter) continue;
      if (!hasMaterialized(known, found)) return this.#name(known);
      this.#values.add({ ...known, value: found?.value });
      known.getter = undefined;
    }
    return undefined;
  }

  #findAddition(): string | undefined {
    const shapes = this.#shapes;
    for (let index = 0; index < shapes.length; index += 1) {
      const shape = shapes[index];
      if (shape === undefined) continue;
      const { holder, parent } = shape;
      const isSame = getPrototypeOf(holder) === parent && isExtensible(holder);
      if (!isSame || hasEnumerable(holder)) return this.#nameHolder(holder);
    }
    // Non-enumerable members that change how JSON and `await` treat an object.
    if ('toJSON' in objectPrototype || 'then' in objectPrototype) return 'Object.prototype';
    return 'toJSON' in arrayPrototype ? 'Array.prototype' : undefined;
  }

  #explore(value: unknown, path: string): void {
    if (!isObject(value) || value === globalThis || this.#paths.has(value)) return;
    const keys = ownKeys(value);
    if (typeof value === 'function' && isPlain(value, keys)) return;
    this.#paths.set(value, path);
    for (const key of keys) {
      const member: unknown = getOwnPropertyDescriptor(value, key)?.value;
      // Members under Node's own symbols are state, except methods.
      if (typeof key === 'string' || typeof member === 'function') {
        this.#explore(member, joinPath(path, key));
      }
    }
    // Last, so that `Function.prototype` is known by that name.
    this.#parents.push([`${path}.__proto__`, getPrototypeOf(value)]);
  }

  #name({ holder, key }: Pick<KnownValue, 'holder' | 'key'>): string {
    return holder === globalThis ? String(key) : joinPath(this.#nameHolder(holder), key);
  }

  #nameHolder(holder: object): string {
    return apply(getEntry, this.#paths, [holder]) ?? 'a built-in';
  }
}

/** Node sets some globals on first access: their getter then returns the same value again. */
function hasMaterialized(
  { getter, holder }: KnownGetter,
  found: PropertyDescriptor | undefined,
): boolean {
  if (found === undefined || !('value' in found) || typeof getter !== 'function') return false;
  try {
    return apply(getter, holder, []) === found.value;
  } catch {
    return false;
  }
}

function isObject(value: unknown): value is object {
  return (typeof value === 'object' && value !== null) || typeof value === 'function';
}

/** A function that is not a class and has no members; nothing depends on its name and length. */
function isPlain(value: object, keys: readonly PropertyKey[]): boolean {
  for (const key of keys) {
    if (key === 'length' || key === 'name') continue;
    const member: unknown = getOwnPropertyDescriptor(value, key)?.value;
    if (key !== 'prototype' || !isObject(member) || ownKeys(member).length > 1) return false;
  }
  return true;
}

function isChangeable({ configurable, writable }: PropertyDescriptor): boolean {
  return configurable === true || writable === true;
}

/** Getters of the language and of `globalThis`; the many others matter little. */
function isWorthWatching(holder: object, getter: () => unknown): boolean {
  if (holder === RegExp) return false;
  return holder === globalThis || apply(readSource, getter, []).endsWith('{ [native code] }');
}

function isPrototype(holder: object): boolean {
  const maker: unknown = getOwnPropertyDescriptor(holder, 'constructor')?.value;
  return typeof maker === 'function' && maker.prototype === holder;
}

/** Inherited members count too. */
function hasEnumerable(object: object): boolean {
  for (const _ in object) return true;
  return false;
}

function joinPath(path: string, key: PropertyKey): string {
  return typeof key === 'symbol' ? `${path}[${String(key.description)}]` : `${path}.${key}`;
}

/** Prototypes that no global refers to. */
function listHiddenPrototypes(): [string, object][] {
  const prototypeOf = (value: object): object => getPrototypeOf(value) ?? objectPrototype;
  return [
    ['GeneratorFunction.prototype', prototypeOf(function* () {})],
    ['AsyncGeneratorFunction.prototype', prototypeOf(async function* () {})],
    ['AsyncFunction.prototype', prototypeOf(async () => {})],
    ['ArrayIterator.prototype', prototypeOf([].values())],
    ['MapIterator.prototype', prototypeOf(new Map().values())],
    ['SetIterator.prototype', prototypeOf(new Set().values())],
    ['StringIterator.prototype', prototypeOf(''[Symbol.iterator]())],
    ['RegExpStringIterator.prototype', prototypeOf(''.matchAll(/./g))],
  ];
}

interface KnownValue {
  readonly holder: object;
  readonly key: PropertyKey;
  readonly value: unknown;
}

/** Compiling takes about 10 ms, which a thread with few jobs does not recover. */
const COMPILE_AFTER = 200;

type IsSame = () => boolean;

/**
 * Compares many properties with their earlier values. Because it runs after every job, it is
 * compiled: one function per object, with the keys in its source, is several times as fast as a
 * loop over keys.
 */
class ValueComparison {
  readonly #known: KnownValue[];
  #compiled: IsSame[] | undefined;
  #runs = 0;

  constructor(known: readonly KnownValue[]) {
    this.#known = [...known];
  }

  /** Watches one more property, which must have this value now. */
  add(known: KnownValue): void {
    this.#known[this.#known.length] = known;
    this.#compiled = undefined;
    this.#runs = 0;
  }

  /**
   * Returns the first property with another value. Rethrows the error of a getter that has replaced
   * a value.
   */
  findDifference(): KnownValue | undefined {
    const compiled = this.#compiled;
    if (!compiled) return this.#search();
    for (let index = 0; index < compiled.length; index += 1) {
      if (compiled[index]?.() === false) return this.#search();
    }
    return undefined;
  }

  #search(): KnownValue | undefined {
    const known = this.#known;
    for (let index = 0; index < known.length; index += 1) {
      const each = known[index];
      if (each !== undefined && readProperty(each.holder, each.key) !== each.value) return each;
    }
    this.#runs += 1;
    // Compiles now, because compiling uses built-ins, and these are known to be unchanged.
    if (this.#runs >= COMPILE_AFTER) this.#compiled = compile(known);
    return undefined;
  }
}

function compile(known: readonly KnownValue[]): IsSame[] {
  const groups = Map.groupBy(known, ({ holder }) => holder);
  return [...groups.values()].map(compileGroup);
}

/** Compiles the comparison of one object's properties. */
function compileGroup(group: readonly KnownValue[]): IsSame {
  const tests = group.map(({ key }, index) => {
    const place = typeof key === 'symbol' ? `key${index}` : JSON.stringify(key);
    return `holder[${place}] === value${index}`;
  });
  const parameters = group.flatMap((_, index) => [`key${index}`, `value${index}`]);
  const makeTest = compileFunction(`return () => ${tests.join(' && ')}`, ['holder', ...parameters]);
  return makeTest(group[0]?.holder, ...group.flatMap(({ key, value }) => [key, value]));
}
