// Runs a handler without queue and lease. One that sleeps runs again; one that fails, only if you ask for more attempts.
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
import type { Device, Lease, Outcome } from '../wire/link/worker-link.ts';
import { readTraceContext } from '../wire/trace-context.ts';
import { InlineExecutor } from '../worker/execution/inline-executor.ts';
import { LoneJob } from '../worker/execution/lone-job.ts';
import type { TestedHandler } from './harness.ts';

export interface RunHandlerOptions {
  /**
   * Attempts, made without a wait after a failure that the handler's retry policy retries. Default 1. An attempt that ends in a
   * `ctx.sleep` does not count.
   */
  attempts?: number;
  /** Default: the handler's `config.timeoutMs`, else 600,000. */
  timeoutMs?: number;
  devices?: readonly Device[];
  /** Cancels the job. */
  signal?: AbortSignal;
  /** `ctx.sleep` waits on it. Default: the machine's clock; then `ctx.sleep` does not wait. */
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
  /** Number of the last attempt. After each `ctx.sleep` there is one more. */
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
    const lease = makeLease(bytes, timeoutMs, options);
    const noChildren = 'runHandler starts no child jobs; use createHarness with `endpoints`';
    const job = new LoneJob({ executor, lease, timeoutMs, clock: options.clock, noChildren });
    for (let failures = 1; ; failures++) {
      const { outcome, run } = await runOnce(job, options.signal);
      // The handler produced these values, so its types describe them.
      if (failures >= attempts || !isRetried(outcome, { failures, config })) {
        return run as RunOf<Handler>;
      }
    }
  } finally {
    await executor.stop();
  }
}

function makeLease(
  input: Uint8Array,
  executionTimeoutMs: number,
  { clock = systemClock, s3Config, traceparent, tracestate }: RunHandlerOptions,
): Lease {
  return {
    jobId: 'test-job',
    attempt: 1,
    token: 'test',
    executionTimeoutMs,
    // A batch handler waits for no other job.
    solo: true,
    submittedAt: clock.now(),
    ...readTraceContext(traceparent, tracestate),
    ...(s3Config && { s3Config: JSON.stringify(s3Config) }),
    input,
  };
}

async function runOnce(job: LoneJob, signal: AbortSignal | undefined) {
  const run: HandlerRun = {
    status: 'FAILED',
    chunks: [],
    progress: [],
    pauses: [],
    limitPauses: [],
    log: [],
    attempts: 0,
  };
  const execution = job.execute({
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
  const cancel = () => execution.stop('cancelled');
  signal?.addEventListener('abort', cancel, { once: true });
  if (signal?.aborted) cancel();
  const { outcome, output } = await execution.end;
  signal?.removeEventListener('abort', cancel);
  run.attempts = job.attempt;
  describeOutcome(run, outcome, output);
  return { outcome, run };
}

/** As the queue decides; an attempt that does not count is one of `failures` too. */
function isRetried(
  outcome: Outcome,
  { config, failures }: { config: HandlerConfig; failures: number },
): boolean {
  if (outcome.kind !== 'failed' && outcome.kind !== 'timed_out') return false;
  const policy = completeRetry({ retry: { own: config.retry ?? {} }, maxAttempts: Infinity });
  return decideRetry(policy, {
    code: outcome.error.code,
    wish: outcome.kind === 'failed' ? readWish(outcome) : { kind: 'default' },
    failures,
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
