// Begins to serve the shards of a node: from now on it claims those of its plan, and leads if it gets shard 0.
import { LocalShards } from '../../cluster/local-shards.ts';
import { createQueue } from '../create-queue.ts';
import { createWorkerHost } from '../machines/node-work.ts';
import type { JoinedNode } from './joined-node.ts';
import { Leader, type LeaderPods } from './leader.ts';
import { askNode, NODE_CALLS } from './node-calls.ts';
import type { Routing } from './node-routing.ts';
import { openShardStore, ShardOpener, type ShardStore } from './shard-opener.ts';

interface ServingNode extends JoinedNode, Routing {
  /** URL at which workers on this machine reach the platform. */
  workerUrl: string;
}

/** Closing hands all shards over to other nodes: requests for them are forwarded then. */
export function serveShards(node: ServingNode, stack: AsyncDisposableStack): Leader {
  const { calls, client, clock, compute, control, keys, membership, options, pods, served } = node;
  const { log } = options;
  const opener = createOpener(node);
  const leader = new Leader({
    clock,
    log,
    store: control,
    keys,
    compute,
    pods: describePods(node),
    open: (onLost) => opener.open(0, onLost),
    removeFromShard: (shard, id, signal) =>
      unlessAborted(removeFromShard(node, opener, { shard, endpointId: id }), signal),
  });
  const shards = new LocalShards({
    membership,
    clock,
    log,
    served,
    open: (shard, onLost) => (shard === 0 ? leader.open(onLost) : opener.open(shard, onLost)),
    async callNode(url) {
      await askNode(client, url, NODE_CALLS.shards, null).catch((error: unknown) => {
        log.warn({ err: error, node: url }, 'could not notify a node; it will poll');
      });
    },
  });
  calls.answer(NODE_CALLS.remove, async ({ endpointId, shard }) => {
    await node.placement.refresh();
    await removeHere(opener, { shard, endpointId });
  });
  membership.onView((view) => {
    shards.follow(view);
    pods?.machines.follow(view);
  });
  stack.defer(() => shards.leave());
  shards.follow(membership.view);
  return leader;
}

function createOpener(node: ServingNode): ShardOpener {
  const { clock, compute, control, controlCopies, endpointCopies, membership, options } = node;
  const { placement, queues, status } = node;
  const { endpoints } = compute;
  return new ShardOpener({
    clock,
    log: options.log,
    endpoints,
    queues,
    copies: endpointCopies,
    reloadControl: () => controlCopies.reload(),
    countRequests: (shard) => placement.countRequests(shard),
    noteClosed: (shard) => status.noteClosed(shard),
    async openStore(shard, onLost): Promise<ShardStore> {
      // Rejects without a lease: then only a renewal tells whether another node has claimed the shard.
      const isOwner = () => membership.isMine(shard);
      const { failures, target } = node;
      const { log, storeLimits: limits = {} } = options;
      const ofShard = { shard, isOwner, onLost, target, limits, failures, log };
      const opened = await openShardStore(ofShard);
      status.noteOpen(shard, opened.size);
      if (shard === 0) control.own(opened.store);
      return opened;
    },
    createQueue: (store, shard) =>
      createQueue({
        ...options,
        store,
        clock,
        wrapLink: node.wrapLink,
        tracing: node.tracing,
        findScaling: node.findScaling,
        owns: (id) => endpoints.find(id)?.shard === shard,
      }),
  });
}

/** Tells other nodes of this machine, too. */
function describePods(node: ServingNode): LeaderPods | undefined {
  const { calls, clock, compute, options, pods, queues, work, workerUrl } = node;
  if (!pods || !work) {
    const machine = { engine: 'none', name: '', workerUrl: '', limits: NO_LIMITS } as const;
    const devices = [...(options.compute.devices ?? [])];
    calls.answer(NODE_CALLS.describe, async () => ({ ...machine, devices }));
    return undefined;
  }
  const info = pods.describe(workerUrl);
  calls.answer(NODE_CALLS.describe, async () => info);
  const { hasFolders, machines, term } = pods;
  const hasVolumes = compute.engine?.stateVolumes !== undefined;
  const host = createWorkerHost({
    clock,
    machines,
    term,
    queues,
    replaceWorkersMs: options.nodes.replaceWorkersMs,
    work,
    workerUrl,
    hasFolders,
    tidyVolumes: hasVolumes ? () => compute.remains.tidyVolumes() : undefined,
  });
  return { machines, work, host, info };
}

const NO_LIMITS = { memoryGb: 0, vcpus: 0, diskGb: 0 };

interface DeletedEndpoint {
  shard: number;
  endpointId: string;
}

/** On whichever node that is. @throws if it is not possible now */
async function removeFromShard(
  { client, owners, served }: ServingNode,
  opener: ShardOpener,
  deleted: DeletedEndpoint,
): Promise<void> {
  const { shard } = deleted;
  if (served.has(shard)) return removeHere(opener, deleted);
  const owner = owners.find(shard);
  if (owner.kind !== 'node') throw new Error(`no node serves shard ${shard} now`);
  await askNode(client, owner.url, NODE_CALLS.remove, deleted);
}

async function removeHere(
  opener: ShardOpener,
  { endpointId, shard }: DeletedEndpoint,
): Promise<void> {
  if (await opener.removeEndpoint(shard, endpointId)) return;
  throw new Error(`endpoint ${endpointId} cannot be removed from shard ${shard} at the moment`);
}

/** @returns false if the signal aborts first. @throws what `work` rejects with */
function unlessAborted(work: Promise<void>, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const stop = () => resolve(false);
    signal.addEventListener('abort', stop, { once: true });
    if (signal.aborted) stop();
    work.then(() => resolve(true), reject).finally(() => signal.removeEventListener('abort', stop));
  });
}
