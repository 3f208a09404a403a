// A handler that runs the code in its input, and code that replaces built-ins.

/** Input of another job, which must return it. */
export const otherValue = {
  text: 'é\u0000"',
  list: [1, [2, null], { a: true }],
  date: '2026-01-02',
};

export const replacingHandler = `
  export const config = { isolation: 'job' };
  let jobs = 0;
  let loads = 0;
  export const setup = () => { loads += 1; };
  export const teardown = () => { console.log('teardown'); };
  const fake = () => 'fake';
  const boom = () => { throw new Error('boom'); };
  export default async function (job, ctx) {
    jobs += 1;
    const { code, count } = job.input;
    if (code) { (0, eval)('(fake, boom) => {' + code + '}')(fake, boom); return 'done'; }
    if (count) return { jobs, loads };
    return job.input.value;
  }
`;

/** Objects that every handler can reach, and members on which much code depends. */
export const targets: readonly (readonly [string, readonly string[]])[] = [
  ['JSON', ['stringify', 'parse']],
  ['Buffer', ['from', 'concat', 'byteLength', 'allocUnsafeSlow']],
  ['Buffer.prototype', ['toString', 'utf8Write', 'utf8Slice', 'subarray']],
  ['Uint8Array.prototype.__proto__', ['set', 'subarray', 'slice']],
  ['Array.prototype', ['push', 'map', 'join', 'filter', 'Symbol.iterator']],
  ['String.prototype', ['slice', 'replace', 'split', 'concat']],
  ['Object', ['keys', 'entries', 'hasOwn', 'getPrototypeOf', 'create']],
  ['Object.prototype', ['toJSON', 'then', 'toString', 'hasOwnProperty']],
  ['Promise.prototype', ['then', 'catch', 'constructor']],
  ['Promise', ['resolve', 'withResolvers']],
  ['Map.prototype', ['get', 'set', 'delete', 'values']],
  ['Function.prototype', ['call', 'apply', 'bind']],
  ['Reflect', ['apply', 'ownKeys', 'get']],
  ['Number', ['isFinite', 'isInteger']],
  ['Math', ['max', 'min', 'round']],
  ['TextDecoder.prototype', ['decode']],
  ['RegExp.prototype', ['exec', 'test']],
  ['performance', ['now', 'eventLoopUtilization']],
  ['process', ['emit', 'nextTick', 'exit']],
  ['console', ['log', 'error']],
  ['Error', ['prepareStackTrace', 'captureStackTrace']],
  ['globalThis', ['JSON', 'Buffer', 'Array', 'Promise', 'Map', 'setTimeout', 'setImmediate']],
];

/** `value`: `fake`, which returns a text, or `boom`, which throws. */
export function writeChange(target: string, method: string, value: 'fake' | 'boom'): string {
  return `${target}[${method.startsWith('Symbol') ? method : `'${method}'`}] = ${value}`;
}
