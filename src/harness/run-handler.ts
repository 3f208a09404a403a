// Runs a handler without queue and lease, in one attempt unless you ask for more.
import { type Clock, systemClock } from '../base/clock.ts';
import type { HandlerConfig } from '../handler/define.ts';
import { readHandler } from '../handler/loading/load.ts';
import { completeRetry, decideRetry, readWish } from '../queue/lifecycle/retry.ts';
import type { Chunk } from '../wire/chunk/chunk.ts';
import { reassemble } from '../wire/chunk/chunk-pieces.ts';
import type { AttemptError } from '../wire/job/attempt.ts';
import type { ChunkOf, InputOf, OutputOf } from '../wire/job/handler-types.ts';
import { LIMITS, type S3Config } from '../wire/job/job.ts';
import { requireJsonInput } from '../wire/job/json-input.ts';
import { type Json, stringifyJson } from '../wire/json.ts';
import type { Device, Outcome } from '../wire/link/worker-link.ts';
import { readTraceContext } from '../wire/trace-context.ts';
import { InlineExecutor } from '../worker/execution/inline-executor.ts';
import type { TestedHandler } from './harness.ts';

export interface RunHandlerOptions {
  /** Attempts, made without a wait after a failure that the handler's retry policy retries. Default 1. */
  attempts?: number;
  /** Default: the handler's `config.timeoutMs`, else 600,000. */
  timeoutMs?: number;
  devices?: readonly Device[];
  /** Cancels the job. */
  signal?: AbortSignal;
  clock?: Clock;
  /** Trace headers of the client's request. */
  traceparent?: string;
  tracestate?: string;
  /** `job.s3Config` for the handler. */
  s3Config?: S3Config;
}

export interface HandlerRun<Output = Json, ChunkOutput = Json> {
  status: 'COMPLETED' | 'FAILED' | 'TIMED_OUT' | 'CANCELLED';
  /** The return value; for a generator that returns nothing, the array of all yielded values. */
  output?: Output;
  error?: AttemptError;
  /** Chunks of the last attempt as sent over the wire: a large output is several chunks. */
  chunks: Chunk<ChunkOutput>[];
  progress: Json[];
  /** For how long `ctx.pauseGroup` asked to hold back the job's group, ms. */
  pauses: number[];
  /** The same of `ctx.pauseLimit`. */
  limitPauses: { limit: string; forMs: number }[];
  /** The log without `console` output, one object per line. */
  log: Record<string, unknown>[];
  attempts: number;
}

type RunOf<Handler> = HandlerRun<OutputOf<Handler, Json>, ChunkOf<Handler, Json>>;

const CPU: Device = { kind: 'cpu', index: 0, uuid: 'cpu', name: 'test', memoryBytes: 0 };

/**
 * Runs setup, the job and teardown. @throws HandlerLoadError, HandlerNotLoadedError (setup threw)
 */
export async function runHandler<Handler extends TestedHandler>(
  module: Handler,
  input: InputOf<Handler, unknown>,
  options: RunHandlerOptions = {},
): Promise<RunOf<Handler>> {
  const { attempts = 1, devices = [CPU], clock = systemClock } = options;
  const handler = readHandler(module, 'handler');
  const executor = new InlineExecutor({ handler, devices, clock, slots: 1 });
  const config = await executor.start();
  const timeoutMs = options.timeoutMs ?? config.timeoutMs ?? LIMITS.executionTimeoutMs.default;
  try {
    requireJsonInput(input);
    const bytes = Buffer.from(stringifyJson(input, 'input'));
    for (let attempt = 1; ; attempt++) {
      const { outcome, run } = await runOnce({
        executor,
        attempt,
        input: bytes,
        timeoutMs,
        options,
      });
      // The handler produced these values, so its types describe them.
      if (attempt >= attempts || !isRetried(outcome, { attempt, config })) {
        return run as RunOf<Handler>;
      }
    }
  } finally {
    await executor.stop();
  }
}

interface OneRun {
  executor: InlineExecutor;
  attempt: number;
  input: Uint8Array;
  timeoutMs: number;
  options: RunHandlerOptions;
}

async function runOnce({ executor, attempt, input, timeoutMs, options }: OneRun) {
  const { clock = systemClock, s3Config, signal, traceparent, tracestate } = options;
  const run: HandlerRun = {
    status: 'FAILED',
    chunks: [],
    progress: [],
    pauses: [],
    limitPauses: [],
    log: [],
    attempts: attempt,
  };
  const lease = {
    jobId: 'test-job',
    attempt,
    token: 'test',
    executionTimeoutMs: timeoutMs,
    // A batch handler waits for no other job.
    solo: true,
    submittedAt: clock.now(),
    ...readTraceContext(traceparent, tracestate),
    ...(s3Config && { s3Config: JSON.stringify(s3Config) }),
    input,
  };
  const execution = executor.execute(lease, timeoutMs, {
    chunks: ({ bytes }) => {
      run.chunks.push(...parse<Chunk[]>(`[${Buffer.from(bytes).toString()}]`));
      execution.grant(bytes.length);
    },
    pause: (forMs, limit) => {
      if (limit === undefined) run.pauses.push(forMs);
      else run.limitPauses.push({ limit, forMs });
    },
    progress: (value) => run.progress.push(parse(Buffer.from(value).toString())),
    log: (lines) => run.log.push(...parseLines(lines)),
  });
  const cancelTimer = clock.after(timeoutMs, () => execution.stop('timeout'));
  const cancel = () => execution.stop('cancelled');
  signal?.addEventListener('abort', cancel, { once: true });
  if (signal?.aborted) cancel();
  const { outcome, output } = await execution.end;
  cancelTimer();
  signal?.removeEventListener('abort', cancel);
  describeOutcome(run, outcome, output);
  return { outcome, run };
}

/** As the queue decides; an attempt that does not count is one of `attempts` too. */
function isRetried(
  outcome: Outcome,
  { attempt, config }: { attempt: number; config: HandlerConfig },
): boolean {
  if (outcome.kind !== 'failed' && outcome.kind !== 'timed_out') return false;
  const policy = completeRetry({ retry: { own: config.retry ?? {} }, maxAttempts: Infinity });
  return decideRetry(policy, {
    code: outcome.error.code,
    wish: outcome.kind === 'failed' ? readWish(outcome) : { kind: 'default' },
    failures: attempt,
    now: 0,
    firstStartedAt: undefined,
    expiresAt: Number.POSITIVE_INFINITY,
    isAtOnce: true,
    random: Math.random,
  }).isRetried;
}

function describeOutcome(run: HandlerRun, outcome: Outcome, output: Uint8Array | undefined): void {
  switch (outcome.kind) {
    case 'completed':
      run.status = 'COMPLETED';
      run.output = output ? parse(Buffer.from(output).toString()) : reassemble(run.chunks);
      return;
    case 'failed':
      run.error = outcome.error;
      return;
    case 'timed_out':
      run.status = 'TIMED_OUT';
      run.error = outcome.error;
      return;
    case 'cancelled':
    case 'released':
      run.status = 'CANCELLED';
  }
}

function parseLines(lines: Uint8Array): Record<string, unknown>[] {
  const text = Buffer.from(lines).toString();
  return text.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line)]));
}

/** The executor serialised this JSON itself, so it is valid. */
function parse<T>(text: string): T {
  return JSON.parse(text);
}
