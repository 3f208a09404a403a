// The Prometheus metrics of one worker. It loads prom-client, so a worker without a health port does
// not load it.
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { Clock } from '../../base/clock.ts';
import { registerProcessMetrics } from '../../base/process-metrics.ts';
import type { GpuUsage } from '../../wire/job/attempt.ts';
import type { Lease, Outcome } from '../../wire/link/worker-link.ts';
import type { WorkerHealth } from '../worker.ts';
import { NO_OBSERVER, type WorkerObserver } from '../worker-options.ts';

/** A job may wait or run for days. For times beyond the last bucket, see the job's record. */
const DURATION_BUCKETS_S = [0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1_800, 7_200];
const GAP_BUCKETS_S = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30];
/** A chunk has at most 1,000,000 bytes. */
const CHUNK_BUCKETS = [100, 1_000, 10_000, 100_000, 1_000_000];

const SIZE_BUCKETS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024];
const RATIO_BUCKETS = [0.1, 0.25, 0.5, 0.75, 0.9, 1];
const FILL_BUCKETS_S = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5, 10];

interface WorkerMetricsOptions {
  clock: Clock;
  /** Version of the package. */
  version: string;
}

export interface WorkerMetrics {
  readonly observer: WorkerObserver;
  /** In Prometheus text format. */
  collect(health: WorkerHealth): Promise<string>;
  /**
   * For a supervisor, which combines them with those of other workers; the worker's ID is a label.
   */
  export(health: WorkerHealth, workerId: string): Promise<unknown>;
}

export function createWorkerMetrics({ clock, version }: WorkerMetricsOptions): WorkerMetrics {
  const registry = new Registry();
  registerProcessMetrics(registry, version);
  const refresh = registerHealth(registry);
  return {
    observer: {
      ...NO_OBSERVER,
      ...observeAttempts(registry, clock),
      ...observeBatches(registry),
      ...observeCalls(registry),
    },
    collect(health) {
      refresh(health);
      return registry.metrics();
    },
    export(health, workerId) {
      refresh(health);
      registry.setDefaultLabels({ worker: workerId });
      return registry.getMetricsAsJSON();
    },
  };
}

/** Returns a function that sets the gauges from the worker's health. */
function registerHealth(registry: Registry): (health: WorkerHealth) => void {
  const add = (name: string, help: string) =>
    new Gauge({ name: `millrace_worker_${name}`, help, registers: [registry] });
  const ready = add('ready', '1 while the worker can take and run jobs, else 0.');
  const slots = add('slots', 'Jobs that the worker can run at once.');
  const running = add('slots_running', 'Attempts that hold or wait for a slot.');
  const stuck = add('slots_stuck', 'Attempts that were stopped and have not ended in time.');
  const breaker = add(
    'breaker_open',
    '1 while job after job failed with the same error, so the worker takes one job at a time, else 0.',
  );
  const parked = add(
    'parked',
    '1 while the models of the worker are not on its GPU, or on the way, else 0.',
  );
  const outbox = add('outbox_reports', 'Reports that the platform has not acknowledged.');
  const outboxTrouble = add('outbox_trouble', '1 while reports cannot be written to disk, else 0.');
  return (health) => {
    ready.set(health.ready ? 1 : 0);
    slots.set(health.slots);
    running.set(health.running);
    stuck.set(health.stuck);
    breaker.set(health.sameError === undefined ? 0 : 1);
    parked.set(health.parking === undefined || health.parking === 'ready' ? 0 : 1);
    outbox.set(health.outboxDepth);
    outboxTrouble.set(health.outboxTrouble === undefined ? 0 : 1);
  };
}

interface AttemptTimes {
  readonly beganAt: number;
  chunkAt: number | undefined;
}

type AttemptObserver = Pick<WorkerObserver, 'attemptBegan' | 'chunksYielded' | 'attemptEnded'>;

function observeAttempts(registry: Registry, clock: Clock): AttemptObserver {
  const { ended, execution, queueWait, firstChunk, chunkGap, chunkBytes } =
    registerAttempts(registry);
  const countGpu = registerGpu(registry);
  const runs = new Map<Lease, AttemptTimes>();
  return {
    attemptBegan(lease) {
      const beganAt = clock.now();
      runs.set(lease, { beganAt, chunkAt: undefined });
      // A later attempt's time since submission includes earlier attempts, so it is not a wait.
      if (lease.attempt === 1) queueWait.observe(toSeconds(beganAt - lease.submittedAt));
    },
    chunksYielded(lease, { sizes }) {
      for (const size of sizes) chunkBytes.observe(size);
      const run = runs.get(lease);
      if (!run) return;
      const now = clock.now();
      if (run.chunkAt === undefined) firstChunk.observe(toSeconds(now - run.beganAt));
      else {
        const share = toSeconds(now - run.chunkAt) / sizes.length;
        for (let index = 0; index < sizes.length; index++) chunkGap.observe(share);
      }
      run.chunkAt = now;
    },
    attemptEnded(lease, outcome, usage) {
      runs.delete(lease);
      ended.inc({ outcome: outcome.kind });
      if (usage?.gpu) countGpu(usage.gpu);
      if (outcome.kind === 'released') return;
      execution.observe({ outcome: outcome.kind }, toSeconds(outcome.executionMs));
    },
  };
}

function registerAttempts(registry: Registry) {
  const registers = [registry];
  const addHistogram = (name: string, help: string, buckets: number[]) =>
    new Histogram({ name: `millrace_worker_${name}`, help, buckets, registers });
  const ended = new Counter({
    name: 'millrace_worker_attempts_ended_total',
    help: 'Attempts that ended on this worker, by outcome.',
    labelNames: ['outcome'],
    registers,
  });
  const kinds: Outcome['kind'][] = [
    'completed',
    'failed',
    'timed_out',
    'cancelled',
    'released',
    'waiting',
  ];
  // Prometheus misses the first event of a counter that has no earlier value, so all start at 0.
  for (const outcome of kinds) ended.inc({ outcome }, 0);
  return {
    ended,
    execution: new Histogram({
      name: 'millrace_worker_execution_seconds',
      help: 'Run time of the handler, by outcome of the attempt.',
      labelNames: ['outcome'],
      buckets: DURATION_BUCKETS_S,
      registers,
    }),
    queueWait: addHistogram(
      'queue_wait_seconds',
      'Time from the submission of a job to the start of its first attempt, by the clocks of both machines.',
      DURATION_BUCKETS_S,
    ),
    firstChunk: addHistogram(
      'first_chunk_seconds',
      'Time from the start of an attempt to its first chunk.',
      DURATION_BUCKETS_S,
    ),
    chunkGap: addHistogram(
      'chunk_gap_seconds',
      'Time between chunks of an attempt; chunks of one batch share the time before the batch.',
      GAP_BUCKETS_S,
    ),
    chunkBytes: addHistogram('chunk_bytes', 'Size of each chunk as JSON.', CHUNK_BUCKETS),
  };
}

/** Counters that exist only once there is something to count: workers without GPUs have none. */
function registerGpu(registry: Registry): (usage: GpuUsage) => void {
  const registers = [registry];
  let seconds: Counter | undefined;
  let joules: Counter | undefined;
  return ({ energyJoules, seconds: used }) => {
    seconds ??= new Counter({
      name: 'millrace_worker_gpu_seconds_total',
      help: 'Devices × seconds of ended attempts; attempts that ran together share their time.',
      registers,
    });
    seconds.inc(used);
    if (energyJoules === undefined) return;
    joules ??= new Counter({
      name: 'millrace_worker_gpu_energy_joules_total',
      help: 'Energy of the GPUs during ended attempts, from power samples.',
      registers,
    });
    joules.inc(energyJoules);
  };
}

type CallObserver = Pick<WorkerObserver, 'leasesRenewed' | 'callFailed' | 'reconnected'>;

function observeCalls(registry: Registry): CallObserver {
  const registers = [registry];
  const renewals = new Counter({
    name: 'millrace_worker_lease_renewals_total',
    help: 'Lease renewals that the platform answered.',
    registers,
  });
  const failed = new Counter({
    name: 'millrace_worker_failed_calls_total',
    help: 'Failed calls to the platform, by verb and code.',
    labelNames: ['verb', 'code'],
    registers,
  });
  const reconnects = new Counter({
    name: 'millrace_worker_reconnects_total',
    help: 'Reconnections to the platform after failed calls, by verb.',
    labelNames: ['verb'],
    registers,
  });
  return {
    leasesRenewed: () => renewals.inc(),
    callFailed: (verb, code) => failed.inc({ verb, code }),
    reconnected: (verb) => reconnects.inc({ verb }),
  };
}

/** At least zero: the clocks of two machines differ, and a clock may be set back. */
function toSeconds(ms: number): number {
  return Math.max(0, ms) / 1_000;
}

function observeBatches(registry: Registry): Pick<WorkerObserver, 'batchChanged'> {
  const registers = [registry];
  const addHistogram = (name: string, help: string, buckets: number[]) =>
    new Histogram({ name: `millrace_worker_batch_${name}`, help, buckets, registers });
  const size = addHistogram('size', 'Jobs in a batch at its start.', SIZE_BUCKETS);
  const fill = addHistogram(
    'fill_ratio',
    'Jobs in a batch at its start, as a share of maxSize.',
    RATIO_BUCKETS,
  );
  const wait = addHistogram(
    'fill_wait_seconds',
    'Time from the arrival of the first job of a batch to the start of the batch.',
    FILL_BUCKETS_S,
  );
  const thrown = new Counter({
    name: 'millrace_worker_batches_thrown_total',
    help: 'Batches whose function threw. split: jobs ran again in parts. failed: no job did.',
    labelNames: ['result'],
    registers,
  });
  for (const result of ['split', 'failed']) thrown.inc({ result }, 0);
  return {
    batchChanged(event) {
      if (event.kind !== 'started') return thrown.inc({ result: event.kind });
      size.observe(event.size);
      fill.observe(event.size / event.of);
      wait.observe(Math.max(0, event.waitMs) / 1_000);
    },
  };
}
