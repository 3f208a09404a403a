// The watch over the built-ins of a handler's thread: every one of them is changed once, in every way,
// in a thread of its own, since the test's own thread needs them.
import { Worker } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';

const module = new URL('../../../src/handler/built-ins.ts', import.meta.url).href;

/** Runs `source`, which has `watch` and posts its result. */
function runInThread(source: string): Promise<unknown> {
  const preamble = `
    import { parentPort } from 'node:worker_threads';
    import { BuiltInWatch } from ${JSON.stringify(module)};
    const post = parentPort.postMessage.bind(parentPort);
    const watch = new BuiltInWatch();
    watch.settle();
  `;
  const code = `data:text/javascript,${encodeURIComponent(preamble + source)}`;
  const worker = new Worker(new URL(code));
  return new Promise((resolve, reject) => {
    worker.once('message', resolve);
    worker.once('error', reject);
  }).finally(() => worker.terminate());
}

/** Changes each built-in, one by one, and puts it back. */
const CHANGE_EACH = `
  const { defineProperty, deleteProperty, getOwnPropertyDescriptor, ownKeys } = Reflect;
  const roots = [globalThis, JSON, Math, Reflect, Atomics];
  const names = ['Object', 'Function', 'Array', 'String', 'Number', 'Boolean', 'Symbol', 'BigInt',
    'Promise', 'RegExp', 'Date', 'Map', 'Set', 'WeakMap', 'WeakSet', 'Error', 'TypeError',
    'ArrayBuffer', 'Uint8Array', 'Float64Array', 'DataView', 'Buffer', 'URL', 'URLSearchParams',
    'TextEncoder', 'TextDecoder', 'AbortController', 'AbortSignal', 'EventTarget'];
  for (const name of names) roots.push(globalThis[name], globalThis[name].prototype);
  roots.push(Object.getPrototypeOf(Uint8Array), Object.getPrototypeOf(Uint8Array.prototype));
  roots.push(Object.getPrototypeOf([].values()), Object.getPrototypeOf(function* () {}));
  const skipped = new Set(['name', 'length', 'prepareStackTrace']);
  const unseen = [];
  let changes = 0;
  const attempt = (change, restore, label) => {
    change();
    const found = watch.findChange();
    restore();
    changes += 1;
    if (found === undefined) unseen.push(label);
  };
  const globals = new Set(['JSON', 'Math', 'Reflect', 'Atomics', 'setTimeout', 'setImmediate', 'fetch',
    'queueMicrotask', 'structuredClone', 'parseInt', ...names]);
  for (const root of roots) {
    for (const key of ownKeys(root)) {
      if (root === globalThis && !globals.has(key)) continue;
      const before = getOwnPropertyDescriptor(root, key);
      if (!before.configurable || skipped.has(key)) continue;
      const isMethod = typeof before.value === 'function';
      const isGetter = before.get && String(before.get).includes('[native code]') && root !== RegExp;
      if (!isMethod && !isGetter) continue;
      const label = String(root.constructor?.name) + ' ' + String(key);
      const restore = () => defineProperty(root, key, before);
      const fake = () => 'fake';
      attempt(() => defineProperty(root, key, { configurable: true, writable: true, value: fake }), restore, label);
      attempt(() => defineProperty(root, key, { configurable: true, get: fake }), restore, label);
      attempt(() => defineProperty(root, key, { configurable: true, get() { throw fake; } }), restore, label);
      attempt(() => deleteProperty(root, key), restore, label);
    }
  }
  post({ changes, unseen, left: watch.findChange() });
`;

describe('BuiltInWatch', () => {
  it.each([
    ['a new thread', ''],
    [
      'a thread with many jobs, where the comparison is compiled',
      'for (let job = 0; job < 300; job += 1) watch.findChange();',
    ],
  ])(
    'sees each built-in that is replaced, hidden behind a getter or deleted, in %s',
    {
      timeout: 60_000,
    },
    async (_, before) => {
      const result = await runInThread(before + CHANGE_EACH);
      expect(result).toMatchObject({ unseen: [], left: undefined });
      expect(result).toHaveProperty(
        'changes',
        expect.toSatisfy((count: number) => count > 2_000),
      );
    },
  );

  it.each([
    ['Object.prototype.polluted = 1', 'Object.prototype'],
    ['Array.prototype.last = () => 1', 'Array.prototype'],
    ["Object.defineProperty(Object.prototype, 'toJSON', { value: () => 1 })", 'Object.prototype'],
    ["Object.defineProperty(Object.prototype, 'then', { value: () => 1 })", 'Object.prototype'],
    ["Object.defineProperty(Array.prototype, 'toJSON', { value: () => 1 })", 'Array.prototype'],
    ['Object.freeze(Array.prototype)', 'Array.prototype'],
    ['Object.setPrototypeOf(Array.prototype, null)', 'Array.prototype'],
    ['JSON.stringify = () => 1', 'JSON.stringify'],
    ['Array.prototype[Symbol.iterator] = () => 1', 'Array.prototype[Symbol.iterator]'],
    ['globalThis.JSON = {}', 'JSON'],
  ])('names the built-in that "%s" changes', async (change, path) => {
    expect(await runInThread(`${change}; post(watch.findChange());`)).toBe(path);
  });

  it.each([
    'globalThis.cache = new Map()',
    "process.env.MODEL = 'large'",
    'process.emit = () => 1',
    'console.log = () => 1',
    'Error.stackTraceLimit = 100',
    'Reflect.metadata = () => 1',
    'void Response; void FormData; void WebSocket; void crypto; void Blob',
    'JSON.stringify = () => 1; watch.settle()',
    "class Mine extends Map {}; Mine.prototype.set = () => 1; new Mine(); 'x'.match(/(.)/)",
  ])('leaves "%s" alone', async (change) => {
    expect(await runInThread(`${change}; post(watch.findChange());`)).toBeUndefined();
  });
});
