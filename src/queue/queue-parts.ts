// The parts of a queue that its operations share. They are made here, in the order of their dependencies.
import { setMaxListeners } from 'node:events';
import type { ResumableClock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { Store } from '../store/store.ts';
import type { BatchForms } from './batches/batch-form.ts';
import { Files } from './batches/files.ts';
import { BatchLineCounts } from './batches/line-counts.ts';
import { Changes } from './changes.ts';
import { EndpointRemoval } from './endpoint-removal.ts';
import { KeptFlows } from './flows/kept-flows.ts';
import { Outbox } from './handover/outbox.ts';
import { ALONE, type Peers } from './handover/peers.ts';
import { RemoteJobs } from './handover/remote-jobs.ts';
import { History } from './history/history.ts';
import type { HistoryTarget } from './history/history-files.ts';
import { InputSchemas } from './input-schemas.ts';
import { JobTimes } from './job-times.ts';
import { JobTracing } from './job-tracing.ts';
import { Presence } from './leases/presence.ts';
import { GpuTotals, WorkerLoads } from './leases/worker-loads.ts';
import { Limits } from './limits/limits.ts';
import { Pauses } from './limits/pauses.ts';
import { Rates } from './limits/rates.ts';
import { SharedLimits } from './limits/shared/shared-limits.ts';
import { LargePayloads } from './payloads/large-payloads.ts';
import { FreshOutputs } from './payloads/outputs.ts';
import type { QueueOptions } from './queue.ts';
import { Absence, RecordedTime } from './recorded-time.ts';
import type { RecordFormats } from './records.ts';
import { Schedules } from './schedules/schedules.ts';
import { completeSettings, type QueueSettings } from './settings.ts';
import { Signals } from './signals.ts';
import { type Arrivals, Positions } from './submissions.ts';
import { type FindScaling, Waits } from './waits.ts';
import { Deliveries } from './webhooks/deliveries.ts';
import type { WebhookSender } from './webhooks/webhooks.ts';

export interface QueueParts {
  /** Its writes also store the time. */
  store: Store;
  recordedTime: RecordedTime;
  /** Run time of the platform over all its starts, ms. */
  ranMs: () => number;
  absence: Absence;
  clock: ResumableClock;
  log: Log;
  /** Uniform in [0, 1). */
  random: () => number;
  settings: QueueSettings;
  /** For the records of webhooks. */
  formats: RecordFormats;
  /** Of the lines of batches. */
  batchForms: BatchForms;
  /** Undefined: nothing is sent; deliveries wait for a platform with a sender. */
  webhooks: WebhookSender | undefined;
  /** Undefined: no job has a history. */
  history: HistoryTarget | undefined;
  histories: History;
  tracing: JobTracing | undefined;
  findScaling: FindScaling;
  /** Whether the endpoint's jobs are in this store: that of shard 0 names the endpoints of all shards. */
  owns: (endpointId: string) => boolean;
  peers: Peers;
  keptFlows: KeptFlows;
  outbox: Outbox;
  remoteJobs: RemoteJobs;
  presence: Presence;
  pauses: Pauses;
  rates: Rates;
  sharedLimits: SharedLimits;
  limits: Limits;
  signals: Signals;
  deliveries: Deliveries;
  jobTimes: JobTimes;
  gpuTotals: GpuTotals;
  batchLines: BatchLineCounts;
  changes: Changes;
  inputSchemas: InputSchemas;
  schedules: Schedules;
  files: Files;
  removal: EndpointRemoval;
  arrivals: Arrivals;
  positions: Positions;
  payloads: LargePayloads;
  outputs: FreshOutputs;
  waits: Waits;
  workerLoads: WorkerLoads;
  /** Aborts when the queue closes: every wait ends. */
  closing: AbortSignal;
}

export function createParts(options: QueueOptions, closing: AbortSignal): QueueParts {
  // Every open long poll listens to this signal, so thousands of listeners are normal.
  setMaxListeners(0, closing);
  const {
    clock,
    batchForms = {},
    findScaling = () => 'none',
    formats = {},
    history,
    log,
    webhooks,
  } = options;
  const { owns = () => true, peers = ALONE, random = Math.random } = options;
  const outbox = new Outbox(peers);
  const recordedTime = new RecordedTime(options);
  const { ranMs, store } = recordedTime;
  const settings = completeSettings(options.settings);
  const presence = new Presence();
  const signals = new Signals(clock, presence);
  const tracing = options.tracing && new JobTracing(options.tracing, clock);
  const pauses = new Pauses({ clock, signals, store });
  const rates = new Rates({ clock, closing, log, signals, store });
  const source = options.sharedLimits;
  const sharedLimits = new SharedLimits({ clock, closing, log, ranMs, signals, source, store });
  const basic = {
    store,
    recordedTime,
    ranMs,
    clock,
    log,
    random,
    settings,
    formats,
    batchForms,
    webhooks,
    history,
    tracing,
    findScaling,
    owns,
    peers,
    keptFlows: new KeptFlows({ clock, store }),
    outbox,
    presence,
    pauses,
    rates,
    sharedLimits,
    limits: new Limits({ pauses, rates, sharedLimits }),
    signals,
    closing,
    absence: new Absence({ store, clock, log }),
    jobTimes: new JobTimes(),
    gpuTotals: new GpuTotals(clock.now()),
    batchLines: new BatchLineCounts(),
    inputSchemas: new InputSchemas(store),
    remoteJobs: new RemoteJobs({ clock, closing, outbox, peers, store }),
  };
  const deliveries = new Deliveries(basic);
  const positions = new Positions(clock);
  const histories = new History({ ...basic, positions });
  const changes = new Changes({ ...basic, deliveries, histories });
  const schedules = new Schedules({ ...basic, changes, positions });
  const onUnused = () => signals.payloadUnused();
  const payloads = new LargePayloads({ store, settings, onUnused });
  const files = new Files({ ...basic, payloads, positions });
  return {
    ...basic,
    deliveries,
    histories,
    changes,
    schedules,
    removal: new EndpointRemoval({ ...basic, deliveries, histories, changes, files, schedules }),
    arrivals: new Map(),
    positions,
    payloads,
    files,
    outputs: new FreshOutputs(clock),
    waits: new Waits(basic),
    workerLoads: new WorkerLoads(basic),
  };
}
