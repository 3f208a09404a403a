// The platform's metrics for Prometheus: reads counts from the store, the queue and the pods at each scrape, and records
// durations as requests end.
import { Histogram, type Registry } from 'prom-client';
import { createMeters, registerProcessMetrics } from '../../base/process-metrics.ts';
import type { CostTotal } from '../../control/billing/spending.ts';
import type { Catalog } from '../../control/endpoints/catalog.ts';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import type { PodState } from '../../control/pods/pod-state.ts';
import { readActivity } from '../../queue/activity/activity.ts';
import { type EndpointTimes, TIME_BUCKETS_S, type TimeCounts } from '../../queue/job-times.ts';
import { StoreUnavailableError } from '../../queue/queue.ts';
import type { Queues } from '../../queue/queues.ts';
import { POD_STATUSES } from '../../wire/resources/pod.ts';
import type { EventHub } from '../events/event-hub.ts';
import type { ForwardedRequest } from '../forwarding/forwarder.ts';
import { judgeEndpoint } from '../overviews.ts';
import { registerStoreMetrics, type StoreStatus } from './store-status.ts';

export interface MetricsOptions {
  /** Belongs to one server: a registry accepts each metric name once. */
  registry: Registry;
  queue: Queues;
  endpoints: Endpoints;
  store: StoreStatus;
  version: string;
  /** All pods. Undefined without an engine: there are no metrics of pods. */
  listPods: (() => readonly PodState[]) | undefined;
  catalog: Pick<Catalog, 'gpuTypes'> | undefined;
  /** Undefined without an engine: there are no metrics of costs. */
  readCosts: (() => readonly CostTotal[]) | undefined;
  /** Whether this node manages the pods of all nodes. Metrics of the others would repeat or contradict its own. */
  isLeader: () => boolean;
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
  const refreshes: Refresh[] = [
    registerEndpointMetrics(options),
    registerScheduleMetrics(options),
    registerBatchMetrics(options),
    registerFlowMetrics(options),
    registerWebhookMetrics(options),
    registerHistoryMetrics(options),
    registerGpuMetrics(options),
    registerPodMetrics(options),
    registerCostMetrics(options),
    registerStoreMetrics(registry, options.store),
  ];
  const crashes = createMeters(registry).counter(
    'millrace_worker_crashes_total',
    'Worker processes that crashed or could not start, as reported by their supervisor.',
    ['endpoint'],
  );
  endpoints.onChange(({ id, kind }) => {
    if (kind === 'deleted') crashes.remove({ endpoint: id });
  });
  return {
    note: registerDurations(registry),
    noteForwarded: registerForwarding(registry),
    noteCrash(endpoint) {
      if (endpoints.has(endpoint)) crashes.inc({ endpoint });
    },
    countEvents: (hub) => void refreshes.push(registerEvents(registry, hub)),
    async collect() {
      for (const refresh of refreshes) {
        try {
          await refresh();
        } catch (error) {
          // The store itself counts and logs its failures. The other metrics are still returned: they show the failure.
          if (!(error instanceof StoreUnavailableError)) throw error;
        }
      }
      return `${await registry.metrics()}${formatJobTimes(options.queue.jobTimes())}`;
    },
  };
}

/** Updates some metrics before a scrape. */
type Refresh = () => void | Promise<void>;

function registerEndpointMetrics({ endpoints, queue, registry }: MetricsOptions): Refresh {
  const { counter, gauge } = createMeters(registry);
  const info = gauge(
    'millrace_endpoint_info',
    'Name of each endpoint, as a label of a constant 1.',
    ['endpoint', 'endpoint_name'],
  );
  const jobs = gauge('millrace_jobs', 'Jobs that have not ended, by status.', [
    'endpoint',
    'status',
  ]);
  const depth = gauge('millrace_queue_depth', 'Queued jobs, delayed ones included.', ['endpoint']);
  const ended = counter(
    'millrace_jobs_ended_total',
    'Jobs that ended, by status, since the endpoint was created.',
    ['endpoint', 'status'],
  );
  const retried = counter(
    'millrace_jobs_retried_total',
    'Automatic and requested retries since the endpoint was created.',
    ['endpoint'],
  );
  const workers = gauge(
    'millrace_workers',
    'Live workers by state: running (with a job) or idle.',
    ['endpoint', 'state'],
  );

  const states = gauge(
    'millrace_endpoint_state',
    'State of each endpoint, as a label of a constant 1; GET /v1/overview describes the states.',
    ['endpoint', 'state'],
  );

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

function registerScheduleMetrics({ queue, registry }: MetricsOptions): Refresh {
  const { counter, gauge } = createMeters(registry);
  const schedules = gauge('millrace_schedules', 'Schedules of each endpoint.', ['endpoint']);
  const ticks = counter(
    'millrace_schedule_ticks_total',
    'Ticks of schedules since the start of the platform, by result: a job, or why there is none.',
    ['endpoint', 'result'],
  );
  return () => {
    for (const metric of [schedules, ticks]) metric.reset();
    for (const [endpoint, counts] of queue.schedules.counts()) {
      schedules.set({ endpoint }, counts.schedules);
      for (const [result, count] of Object.entries(counts.ticks)) {
        ticks.inc({ endpoint, result }, count);
      }
    }
  };
}

function registerHistoryMetrics({ queue, registry }: MetricsOptions): Refresh {
  const { counter, gauge } = createMeters(registry);
  const waiting = gauge('millrace_history_waiting', 'Lines of history that wait for their file.', [
    'endpoint',
  ]);
  const written = counter(
    'millrace_history_written_total',
    'Lines of history in files since the start of the platform.',
    ['endpoint'],
  );
  const dropped = counter(
    'millrace_history_dropped_total',
    'Lines of history that the platform has dropped since its start, because too many waited.',
    ['endpoint'],
  );
  return () => {
    for (const metric of [waiting, written, dropped]) metric.reset();
    for (const [endpoint, counts] of queue.historyCounts()) {
      waiting.set({ endpoint }, counts.waiting);
      written.inc({ endpoint }, counts.written);
      dropped.inc({ endpoint }, counts.dropped);
    }
  };
}

function registerFlowMetrics({ queue, registry }: MetricsOptions): Refresh {
  const flows = createMeters(registry).gauge(
    'millrace_flows',
    'Flows that have not ended, by the endpoint that keeps them.',
    ['endpoint'],
  );
  return async () => {
    const all = await queue.flows.counts();
    flows.reset();
    for (const [endpoint, count] of all) flows.set({ endpoint }, count);
  };
}

function registerBatchMetrics({ queue, registry }: MetricsOptions): Refresh {
  const { counter, gauge } = createMeters(registry);
  const batches = gauge('millrace_batches', 'Batches that have not ended, by state.', [
    ...['endpoint', 'state'],
  ]);
  const lines = counter(
    'millrace_batch_lines_total',
    'Lines of batches that have got a result since the start of the platform.',
    ['endpoint', 'outcome'],
  );
  return () => {
    for (const metric of [batches, lines]) metric.reset();
    for (const [endpoint, counts] of queue.batchCounts()) {
      for (const [state, count] of Object.entries(counts.open)) {
        batches.set({ endpoint, state }, count);
      }
      for (const [outcome, count] of Object.entries(counts.lines)) {
        lines.inc({ endpoint, outcome }, count);
      }
    }
  };
}

function registerWebhookMetrics({ queue, registry }: MetricsOptions): Refresh {
  const { counter, gauge } = createMeters(registry);
  const attempts = counter(
    'millrace_webhook_attempts_total',
    'Attempts to deliver webhooks since the start of the platform, by result.',
    ['endpoint', 'result'],
  );
  const givenUp = counter(
    'millrace_webhooks_given_up_total',
    'Webhooks that the platform has given up since its start.',
    ['endpoint'],
  );
  const waiting = gauge('millrace_webhooks_waiting', 'Webhooks that wait for delivery.', [
    'endpoint',
  ]);

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

function registerGpuMetrics({ queue, registry }: MetricsOptions): Refresh {
  const { counter } = createMeters(registry);
  const seconds = counter(
    'millrace_gpu_seconds_total',
    'Devices × seconds of ended attempts on GPUs, since the start of the platform.',
    ['endpoint'],
  );
  const joules = counter(
    'millrace_gpu_energy_joules_total',
    'Energy of GPUs during ended attempts, where workers measure it, since the start of the platform.',
    ['endpoint'],
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

export function registerPodMetrics({
  catalog,
  isLeader,
  listPods,
  registry,
}: Pick<MetricsOptions, 'catalog' | 'isLeader' | 'listPods' | 'registry'>): Refresh {
  if (!listPods) return () => {};
  const { gauge } = createMeters(registry);
  const statuses = gauge(
    'millrace_pods',
    'Pods by status; `endpoint` is empty for pods that are not workers of an endpoint.',
    ['endpoint', 'status'],
  );
  const parked = gauge(
    'millrace_parked_workers',
    'Workers that are parked: their GPUs are free for others.',
    ['endpoint'],
  );
  const gpus = gauge(
    'millrace_gpus',
    'GPUs by type: free, allocated to a pod, or missing: allocated to a pod and not found on any machine.',
    ['gpu_type', 'state'],
  );
  return () => {
    statuses.reset();
    parked.reset();
    gpus.reset();
    if (!isLeader()) return;
    const pods = listPods();
    // Without any pod there are series as well, so that a dashboard shows 0 and not "no data".
    for (const status of POD_STATUSES) statuses.set({ endpoint: '', status }, 0);
    parked.set({ endpoint: '' }, 0);
    for (const pod of pods) {
      const endpoint = pod.endpointId ?? '';
      statuses.inc({ endpoint, status: pod.status });
      parked.inc({ endpoint }, pod.parked && pod.gpus.length === 0 ? 1 : 0);
    }
    for (const { allocated, free, gpuType, missing } of countGpus(pods, catalog)) {
      gpus.set({ gpu_type: gpuType, state: 'free' }, free);
      gpus.set({ gpu_type: gpuType, state: 'allocated' }, allocated);
      gpus.set({ gpu_type: gpuType, state: 'missing' }, missing);
    }
  };
}

/** A type that the catalog no longer has is listed while pods have GPUs of it. */
function countGpus(pods: readonly PodState[], catalog: MetricsOptions['catalog']) {
  const found = new Map(catalog?.gpuTypes().map(({ devices, id }) => [id, devices]));
  const held = new Map<string, string[]>();
  for (const { gpus, spec } of pods) {
    if (spec.gpu) held.set(spec.gpu.id, [...(held.get(spec.gpu.id) ?? []), ...gpus]);
  }
  return [...new Set([...found.keys(), ...held.keys()])].map((gpuType) => {
    const devices = new Set(found.get(gpuType));
    const all = held.get(gpuType) ?? [];
    const allocated = all.filter((uuid) => devices.has(uuid)).length;
    return {
      gpuType,
      allocated,
      free: devices.size - allocated,
      missing: all.length - allocated,
    };
  });
}

function registerCostMetrics({ isLeader, readCosts, registry }: MetricsOptions): Refresh {
  if (!readCosts) return () => {};
  const { counter } = createMeters(registry);
  const cost = counter(
    'millrace_cost_dollars_total',
    'What endpoints, pods and network volumes cost at the prices of the catalog, USD, since the start of the platform.',
    ['kind', 'endpoint'],
  );
  const allocated = counter(
    'millrace_gpu_allocated_seconds_total',
    'GPUs × seconds of running containers, since the start of the platform. `endpoint` is empty for pods.',
    ['endpoint'],
  );
  return () => {
    cost.reset();
    allocated.reset();
    if (!isLeader()) return;
    for (const { endpointId: endpoint, gpuSeconds, kind, usd } of readCosts()) {
      cost.inc({ kind, endpoint }, usd);
      if (kind !== 'volume') allocated.inc({ endpoint }, gpuSeconds);
    }
  };
}

function registerEvents(
  registry: Registry,
  hub: Pick<EventHub, 'connections' | 'spent' | 'topics'>,
): Refresh {
  const { counter, gauge } = createMeters(registry);
  const connections = gauge('millrace_event_connections', 'Open event streams.');
  const topics = gauge('millrace_event_topics', 'Topics that the node reads for event streams.');
  const reads = counter(
    'millrace_event_reads_total',
    'Reads of topics for event streams; unchanged topics with a change number are not read.',
  );
  const seconds = counter(
    'millrace_event_loop_seconds_total',
    'Time of the event loop that reading topics for event streams has taken.',
  );
  return () => {
    connections.set(hub.connections);
    topics.set(hub.topics);
    reads.reset();
    reads.inc(hub.spent.reads);
    seconds.reset();
    seconds.inc(hub.spent.loopMs / 1_000);
  };
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
