// A handler that does what the job's input names: everything a handler can do well or badly.
import type { Context, Job, SetupContext } from 'millrace';

type Deed =
  | 'answer'
  | 'yield'
  | 'yield for ever'
  | 'ignore the signal'
  | 'wait for the signal'
  | 'block'
  | 'exit'
  | 'exit from a timer'
  | 'throw from a timer'
  | 'reject unheard'
  | 'fill memory'
  | 'speak'
  | 'flood'
  | 'yield and speak'
  | 'return bytes'
  | 'describe';

interface Input {
  do: Deed;
  value?: unknown;
  count?: number;
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
  const { value, count = 1 } = job.input;
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
      return setTimeoutThen(20, () => {
        for (;;);
      });
    case 'exit':
      return process.exit(3);
    case 'exit from a timer':
      return setTimeoutThen(5, () => process.exit(4));
    case 'throw from a timer':
      return setTimeoutThen(5, () => {
        throw new TypeError('nobody catches this');
      });
    case 'reject unheard':
      void Promise.reject(new RangeError('nobody hears this'));
      return new Promise(() => undefined);
    case 'fill memory':
      return fillMemory();
    case 'speak':
      return speak(ctx);
    case 'flood':
      for (let line = 0; line < 20_000; line += 1) console.log(`line ${line} ${'.'.repeat(50)}`);
      return null;
    case 'yield and speak':
      return yieldAndSpeak();
    case 'return bytes':
      return 'x'.repeat(count);
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
