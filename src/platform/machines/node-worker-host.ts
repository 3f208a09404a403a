// What workers need from the machine of their node, and from the node that has their endpoint's queue.
import { type Clock, sleep } from '../../base/clock.ts';
import type { Queues } from '../../queue/queues.ts';
import type { WorkerHost } from '../compute/pod-control.ts';
import type { Machines } from './machines.ts';
import type { NodeWork } from './node-work.ts';

/** Default of `replaceWorkersMs`. */
const REPLACE_MS = 300_000;
/** Workers that end within this time share a removal of folders, ms. */
const TIDY_MS = 1_000;

export interface NodeWorkerHostOptions {
  machines: Machines;
  work: NodeWork;
  queues: Queues;
  /** For a pod whose node has not told its own. */
  workerUrl: string;
  /** Workers keep undelivered outcomes in folders of their node. */
  hasFolders: boolean;
  /** Undefined: the engine has no state volumes. */
  tidyVolumes: (() => Promise<void>) | undefined;
  replaceWorkersMs: number | undefined;
  clock: Clock;
}

export function createWorkerHost(options: NodeWorkerHostOptions): WorkerHost {
  const { hasFolders, machines, queues, work, workerUrl } = options;
  const { replaceWorkersMs: replaceMs = REPLACE_MS } = options;
  const certainUrlOf: WorkerHost['certainUrlOf'] = ({ node }) =>
    node === undefined ? undefined : machines.info(node)?.workerUrl;
  return {
    urlOf: (pod) => certainUrlOf(pod) ?? workerUrl,
    certainUrlOf,
    ...(hasFolders && {
      stateDirOf: async (endpointId, { node = '' }) =>
        String(await machines.act(node, { verb: 'provideFolder', endpointId })),
    }),
    endWorker: async ({ endpointId, node, podId }) => {
      const url = node === undefined ? undefined : machines.urlOf(node);
      const { term } = machines;
      const isRead = hasFolders && url !== undefined && term !== undefined;
      await work.endPod({ endpointId, podId, outbox: isRead ? { url, term } : null });
    },
    tidy: createTidy(options),
    listWorkers: () => queues.workerLoads.listPresent(),
    view: work,
    onWork: (listener) => work.onWork(listener),
    findUnreachable: (pod) => machines.findUnreachable(pod),
    replaceAfterMs: replaceMs > 0 ? replaceMs : undefined,
    leaseMs: queues.settings.leaseMs,
  };
}

function createTidy({ clock, hasFolders, machines, tidyVolumes }: NodeWorkerHostOptions) {
  let isDue = false;
  const tidyFolders = async () => {
    await sleep(clock, TIDY_MS);
    isDue = false;
    // A node that is gone now gets its turn at the end of a later worker.
    await Promise.allSettled(
      machines.names.map((name) => machines.act(name, { verb: 'tidyFolders' })),
    );
  };
  return async () => {
    await tidyVolumes?.();
    if (!hasFolders || isDue) return;
    isDue = true;
    void tidyFolders();
  };
}
