// Metrics for Prometheus: reads counts from the store at each scrape, records durations as requests end.
import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import { registerProcessMetrics } from '../../base/process-metrics.ts';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import { readActivity } from '../../queue/activity/activity.ts';
import { type EndpointTimes, TIME_BUCKETS_S, type TimeCounts } from '../../queue/job-times.ts';
import { StoreUnavailableError } from '../../queue/queue.ts';
import type { Queues } from '../../queue/queues.ts';
import type { EventHub } from '../events/event-hub.ts';
import type { ForwardedRequest } from '../forwarding/forwarder.ts';
import { judgeEndpoint } from '../overviews.ts';
import {
  type CostMetricsOptions,
  type PodMetricsOptions,
  registerCostMetrics,
  registerPodMetrics,
} from './pod-metrics.ts';
import { registerStoreMetrics, type StoreStatus } from './store-status.ts';

export interface MetricsOptions
  extends Omit<PodMetricsOptions, 'registry'>,
    Omit<CostMetricsOptions, 'registry'> {
  /** Belongs to one server: a registry accepts each metric name once. */
  registry: Registry;
  queue: Queues;
  endpoints: Endpoints;
  store: StoreStatus;
  version: string;
}

/** One answered request. `route` is the pattern, not the path: this bounds the number of series. */
export interface AnsweredRequest {
  method: string;
  route: string;
  status: number;
  durationMs: number;
}

export interface ApiMetrics {
  note(answered: AnsweredRequest): void;
  /** A request for another node has ended. */
  noteForwarded(forwarded: ForwardedRequest): void;
  /** A worker process of the endpoint died. */
  noteCrash(endpoint: string): void;
  /** Shows the connections of event streams from now on. */
  countEvents(hub: Pick<EventHub, 'connections' | 'spent' | 'topics'>): void;
  /** Returns all metrics in Prometheus' text format. */
  collect(): Promise<string>;
}

/** The buckets reach beyond the 20 s of a long poll. */
const DURATION_BUCKETS_S = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 90];

export function createMetrics(options: MetricsOptions): ApiMetrics {
  const { endpoints, registry, version } = options;
  registerProcessMetrics(registry, version);
  const refresh = registerEndpointMetrics(options);
  const refreshWebhooks = registerWebhookMetrics(options);
  const refreshGpus = registerGpuMetrics(options);
  const refreshPods = registerPodMetrics(options);
  const refreshCosts = registerCostMetrics(options);
  const refreshStore = registerStoreMetrics(registry, options.store);
  const crashes = new Counter({
    name: 'millrace_worker_crashes_total',
    help: 'Worker processes that crashed or could not start, as reported by their supervisor.',
    labelNames: ['endpoint'],
    registers: [registry],
  });
  endpoints.onChange(({ id, kind }) => {
    if (kind === 'deleted') crashes.remove({ endpoint: id });
  });
  return {
    note: registerDurations(registry),
    noteForwarded: registerForwarding(registry),
    noteCrash(endpoint) {
      if (endpoints.has(endpoint)) crashes.inc({ endpoint });
    },
    countEvents: (hub) => registerEvents(registry, hub),
    async collect() {
      // If the store cannot be read, the other metrics are still returned: they show the failure.
      await refresh().catch(ignoreStoreFailure);
      await refreshWebhooks().catch(ignoreStoreFailure);
      refreshGpus();
      refreshPods();
      refreshCosts();
      await refreshStore();
      return `${await registry.metrics()}${formatJobTimes(options.queue.jobTimes())}`;
    },
  };
}

/** The store itself counts and logs its failures. */
function ignoreStoreFailure(error: unknown): void {
  if (!(error instanceof StoreUnavailableError)) throw error;
}

/** Returns a function that updates these metrics from the store and the queue. */
function registerEndpointMetrics({ endpoints, queue, registry }: MetricsOptions) {
  const registers = [registry];
  const info = new Gauge({
    name: 'millrace_endpoint_info',
    help: 'Name of each endpoint, as a label of a constant 1.',
    labelNames: ['endpoint', 'endpoint_name'],
    registers,
  });
  const jobs = new Gauge({
    name: 'millrace_jobs',
    help: 'Jobs that have not ended, by status.',
    labelNames: ['endpoint', 'status'],
    registers,
  });
  const depth = new Gauge({
    name: 'millrace_queue_depth',
    help: 'Queued jobs, delayed ones included.',
    labelNames: ['endpoint'],
    registers,
  });
  const ended = new Counter({
    name: 'millrace_jobs_ended_total',
    help: 'Jobs that ended, by status, since the endpoint was created.',
    labelNames: ['endpoint', 'status'],
    registers,
  });
  const retried = new Counter({
    name: 'millrace_jobs_retried_total',
    help: 'Automatic and requested retries since the endpoint was created.',
    labelNames: ['endpoint'],
    registers,
  });
  const workers = new Gauge({
    name: 'millrace_workers',
    help: 'Live workers by state: running (with a job) or idle.',
    labelNames: ['endpoint', 'state'],
    registers,
  });

  const states = new Gauge({
    name: 'millrace_endpoint_state',
    help: 'State of each endpoint, as a label of a constant 1; GET /v1/overview describes the states.',
    labelNames: ['endpoint', 'state'],
    registers,
  });

  return async () => {
    const stored = await queue.endpoints();
    const [healths, activities] = await Promise.all([
      Promise.all(stored.map(({ id }) => queue.health(id))),
      readActivity(
        queue,
        stored.map(({ id }) => id),
      ),
    ]);
    // No await from here on: a second scrape must not add to half-set counters.
    for (const metric of [info, jobs, depth, ended, retried, workers, states]) metric.reset();
    for (const [index, counts] of stored.entries()) {
      const endpoint = counts.id;
      info.set({ endpoint, endpoint_name: endpoints.nameOf(endpoint) ?? endpoint }, 1);
      jobs.set({ endpoint, status: 'IN_QUEUE' }, counts.inQueue);
      jobs.set({ endpoint, status: 'IN_PROGRESS' }, counts.inProgress);
      depth.set({ endpoint }, counts.inQueue);
      ended.inc({ endpoint, status: 'COMPLETED' }, counts.completed);
      ended.inc({ endpoint, status: 'FAILED' }, counts.failed);
      ended.inc({ endpoint, status: 'CANCELLED' }, counts.cancelled);
      ended.inc({ endpoint, status: 'TIMED_OUT' }, counts.timedOut);
      retried.inc({ endpoint }, counts.retried);
      workers.set({ endpoint, state: 'idle' }, healths[index]?.workers.idle ?? 0);
      workers.set({ endpoint, state: 'running' }, healths[index]?.workers.running ?? 0);
      const state = judgeEndpoint(activities[endpoint], endpoints.find(endpoint)?.deployment);
      states.set({ endpoint, state }, 1);
    }
  };
}

function registerWebhookMetrics({ queue, registry }: MetricsOptions) {
  const registers = [registry];
  const attempts = new Counter({
    name: 'millrace_webhook_attempts_total',
    help: 'Attempts to deliver webhooks since the start of the platform, by result.',
    labelNames: ['endpoint', 'result'],
    registers,
  });
  const givenUp = new Counter({
    name: 'millrace_webhooks_given_up_total',
    help: 'Webhooks that the platform has given up since its start.',
    labelNames: ['endpoint'],
    registers,
  });
  const waiting = new Gauge({
    name: 'millrace_webhooks_waiting',
    help: 'Webhooks that wait for delivery.',
    labelNames: ['endpoint'],
    registers,
  });

  return async () => {
    const all = await queue.webhookCounts();
    for (const metric of [attempts, givenUp, waiting]) metric.reset();
    for (const [endpoint, { counts, waiting: left }] of all) {
      const { given_up: lost = 0, ...results } = counts;
      for (const [result, count] of Object.entries(results)) {
        attempts.inc({ endpoint, result }, count);
      }
      givenUp.inc({ endpoint }, lost);
      waiting.set({ endpoint }, left);
    }
  };
}

function registerGpuMetrics({ queue, registry }: MetricsOptions) {
  const add = (name: string, help: string) =>
    new Counter({ name, help, labelNames: ['endpoint'], registers: [registry] });
  const seconds = add(
    'millrace_gpu_seconds_total',
    'Devices × seconds of ended attempts on GPUs, since the start of the platform.',
  );
  const joules = add(
    'millrace_gpu_energy_joules_total',
    'Energy of GPUs during ended attempts, where workers measure it, since the start of the platform.',
  );
  return () => {
    seconds.reset();
    joules.reset();
    for (const [endpoint, total] of queue.gpuTotals()) {
      seconds.inc({ endpoint }, total.seconds);
      joules.inc({ endpoint }, total.energyJoules);
    }
  };
}

function registerEvents(
  registry: Registry,
  hub: Pick<EventHub, 'connections' | 'spent' | 'topics'>,
): void {
  new Gauge({
    name: 'millrace_event_connections',
    help: 'Open event streams.',
    registers: [registry],
    collect() {
      this.set(hub.connections);
    },
  });
  new Gauge({
    name: 'millrace_event_topics',
    help: 'Topics that the node reads for event streams.',
    registers: [registry],
    collect() {
      this.set(hub.topics);
    },
  });
  new Counter({
    name: 'millrace_event_reads_total',
    help: 'Reads of topics for event streams; unchanged topics with a change number are not read.',
    registers: [registry],
    collect() {
      this.reset();
      this.inc(hub.spent.reads);
    },
  });
  new Counter({
    name: 'millrace_event_loop_seconds_total',
    help: 'Time of the event loop that reading topics for event streams has taken.',
    registers: [registry],
    collect() {
      this.reset();
      this.inc(hub.spent.loopMs / 1_000);
    },
  });
}

function registerForwarding(registry: Registry): ApiMetrics['noteForwarded'] {
  const durations = new Histogram({
    name: 'millrace_forwarded_request_duration_seconds',
    help: 'Time of requests that this node passed to others, by how they ended.',
    labelNames: ['outcome'],
    buckets: DURATION_BUCKETS_S,
    registers: [registry],
  });
  return ({ durationMs, outcome }) => durations.observe({ outcome }, durationMs / 1_000);
}

function registerDurations(registry: Registry): ApiMetrics['note'] {
  const durations = new Histogram({
    name: 'millrace_http_request_duration_seconds',
    help: 'Time from the request to the end of its response; takes and renewals are long polls.',
    labelNames: ['method', 'route', 'status'],
    buckets: DURATION_BUCKETS_S,
    registers: [registry],
  });
  // A lookup by labels in the histogram costs ten times as much as this map.
  const known = new Map<string, { observe(seconds: number): void }>();
  return ({ durationMs, method, route, status }) => {
    const name = `${method} ${route} ${status}`;
    let series = known.get(name);
    if (!series) {
      series = durations.labels(method, route, String(status));
      known.set(name, series);
    }
    series.observe(durationMs / 1_000);
  };
}

const HISTOGRAMS = [
  {
    name: 'millrace_job_queue_wait_seconds',
    help: 'Time from the moment from which a job may start to the lease of its attempt, since the start of the platform.',
    kind: 'wait',
  },
  {
    name: 'millrace_job_execution_seconds',
    help: 'Run time of the last attempt of each job that ended, since the start of the platform.',
    kind: 'execution',
  },
] as const;

/**
 * The histograms of jobs' times in Prometheus' text format: prom-client cannot take counts that are kept elsewhere.
 * Ends with a line feed.
 */
function formatJobTimes(times: ReadonlyMap<string, Readonly<EndpointTimes>>): string {
  const lines = HISTOGRAMS.flatMap(({ help, kind, name }) => [
    `# HELP ${name} ${help}`,
    `# TYPE ${name} histogram`,
    ...[...times].flatMap(([endpoint, of]) => formatHistogram(name, endpoint, of[kind])),
  ]);
  return `${lines.join('\n')}\n`;
}

function formatHistogram(
  name: string,
  endpoint: string,
  { counts, sumSeconds }: Readonly<TimeCounts>,
): string[] {
  const label = `endpoint="${escapeLabel(endpoint)}"`;
  let total = 0;
  const buckets = counts.map((count, index) => {
    total += count;
    return `${name}_bucket{${label},le="${TIME_BUCKETS_S[index] ?? '+Inf'}"} ${total}`;
  });
  return [...buckets, `${name}_sum{${label}} ${sumSeconds}`, `${name}_count{${label}} ${total}`];
}

function escapeLabel(text: string): string {
  return text.replaceAll(/[\\"]/g, '\\$&').replaceAll('\n', '\\n');
}
