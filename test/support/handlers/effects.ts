// A handler that does what the job's input names: everything a handler can do well or badly.
import { readFileSync } from 'node:fs';
import type { Context, Job, SetupContext } from 'millrace';

type Effect =
  | 'answer'
  | 'yield'
  | 'yield for ever'
  | 'ignore the signal'
  | 'wait for the signal'
  | 'block'
  | 'block after a yield'
  | 'block natively'
  | 'throw a string'
  | 'exit'
  | 'exit from a timer'
  | 'throw from a timer'
  | 'reject unhandled'
  | 'catch what nobody caught'
  | 'fill memory'
  | 'take memory'
  | 'speak'
  | 'flood'
  | 'yield and speak'
  | 'return bytes'
  | 'return no JSON'
  | 'describe';

interface Input {
  do: Effect;
  value?: unknown;
  count?: number;
  /** Read by 'block natively': a FIFO that nobody writes to. */
  file?: string;
}

let setups = 0;
let setUpWith: Pick<SetupContext, 'devices'> | undefined;

export const config = { concurrency: 4 };

export function setup(ctx: SetupContext): void {
  setups += 1;
  setUpWith = ctx;
  ctx.log.info('setting up');
  console.log('console in setup');
}

export function teardown(): void {
  console.log('tearing down');
}

export default function act(job: Job<Input>, ctx: Context): unknown {
  const { value, count = 1, file = '' } = job.input;
  switch (job.input.do) {
    case 'answer':
      return value;
    case 'yield':
      return countUp(count);
    case 'yield for ever':
      return countUp(Number.POSITIVE_INFINITY);
    case 'ignore the signal':
      ctx.progress('waiting');
      return new Promise(() => undefined);
    case 'wait for the signal':
      ctx.progress('waiting');
      return waitForSignal(ctx);
    case 'block':
      ctx.progress('blocking');
      return setTimeoutThen(20, spinForEver);
    case 'block after a yield':
      return yieldAndBlock();
    case 'block natively':
      ctx.progress('blocking');
      return setTimeoutThen(20, () => readFileSync(file));
    case 'throw a string':
      // biome-ignore lint/style/useThrowOnlyError: the test needs a thrown string.
      throw 'no error at all';
    case 'exit':
      return process.exit(3);
    case 'exit from a timer':
      return setTimeoutThen(5, () => process.exit(4));
    case 'throw from a timer':
      return setTimeoutThen(5, () => {
        throw new TypeError('nobody catches this');
      });
    case 'reject unhandled':
      void Promise.reject(new RangeError('nobody handles this'));
      return new Promise(() => undefined);
    case 'catch what nobody caught':
      return catchUncaught();
    case 'fill memory':
      return fillMemory();
    case 'take memory':
      return takeMemory(count, ctx);
    case 'speak':
      return speak(ctx);
    case 'flood':
      for (let line = 0; line < 20_000; line += 1) console.log(`line ${line} ${'.'.repeat(50)}`);
      return null;
    case 'yield and speak':
      return yieldAndSpeak();
    case 'return bytes':
      return 'x'.repeat(count);
    case 'return no JSON':
      return { items: [{ score: 10n }] };
    case 'describe':
      return { setups, devices: ctx.devices, setUpWith: setUpWith?.devices, attempt: ctx.attempt };
  }
}

async function* countUp(until: number): AsyncGenerator<number> {
  for (let index = 0; index < until; index += 1) yield index;
}

async function* yieldAndSpeak(): AsyncGenerator<string> {
  console.log('from the generator');
  yield 'spoken';
}

function waitForSignal({ signal }: Context): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason));
  });
}

/** Never resolves: what `act` does ends the wait. */
function setTimeoutThen(ms: number, act: () => void): Promise<never> {
  setTimeout(act, ms);
  return new Promise(() => undefined);
}

/** Like a module that listens for what its libraries throw in timers. */
function catchUncaught(): Promise<string> {
  setTimeout(() => {
    throw new TypeError('nobody else catches this');
  }, 1);
  return new Promise((resolve) => {
    process.once('uncaughtException', () => setTimeout(() => resolve('caught'), 5));
  });
}

function spinForEver(): never {
  for (;;);
}

async function* yieldAndBlock(): AsyncGenerator<string> {
  yield 'first';
  yield 'last';
  await new Promise((resolve) => setTimeout(resolve, 20));
  spinForEver();
}

/** Allocates more and more resident memory until the signal aborts. */
async function takeMemory(mostBytes: number, { signal }: Context): Promise<never> {
  const taken: Buffer[] = [];
  const blockBytes = 8 * 2 ** 20;
  while (!signal.aborted) {
    if (taken.length * blockBytes < mostBytes) taken.push(Buffer.alloc(blockBytes, 1));
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  throw new Error(`gave ${taken.length} blocks back`);
}

function fillMemory(): never {
  const kept: unknown[] = [];
  for (;;) kept.push(new Array(10_000).fill(kept.length));
}

async function speak(ctx: Context): Promise<null> {
  console.debug('quiet %s', 'word');
  console.log('plain', { a: 1 });
  console.warn('careful');
  console.error(new Error('gone wrong').message);
  console.table([{ x: 1 }]);
  ctx.log.info({ tokens: 3 }, 'by pino');
  await Promise.resolve();
  setTimeout(() => console.log('after an await'), 1);
  await new Promise((resolve) => setTimeout(resolve, 20));
  return null;
}
