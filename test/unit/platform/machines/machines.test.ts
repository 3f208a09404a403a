// The machines of nodes as their leader calls them, over the port for nodes: engines in memory, real agents, HTTP.
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { NodeClient } from '../../../../src/api/nodes/node-client.ts';
import { ManualClock, type ResumableClock, systemClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import type { ClusterView } from '../../../../src/cluster/cluster-rows.ts';
import { DOCKER_CAPABILITIES } from '../../../../src/engine/docker/docker-engine.ts';
import { EngineError } from '../../../../src/engine/engine.ts';
import {
  type MachineAct,
  MachineAgent,
  type MachineInfo,
  machineBody,
} from '../../../../src/platform/machines/machine-agent.ts';
import { LeadTerm, Machines } from '../../../../src/platform/machines/machines.ts';
import { NodesEngine } from '../../../../src/platform/machines/node-compute.ts';
import { SECRET, startNodes } from '../../../support/api/two-nodes.ts';
import { MemoryEngine, MemoryHost } from '../../../support/containers/memory-engine.ts';

const LIMITS = { memoryGb: 8, vcpus: 8, diskGb: 8 };

const describeMachine = (name: string): MachineInfo => ({
  ...{ name, engine: 'docker', workerUrl: `http://${name}`, limits: LIMITS, devices: [] },
});

const specOf = (id: string) => ({
  ...{ id, generation: 1, labels: {}, image: 'busy', args: '', handler: null, env: { A: 'b' } },
  ...{ ports: [], diskGb: 1, registry: null, mounts: [], gpus: [], limits: null, network: null },
});

/** A leader with a machine of its own, and another node. */
async function startMachines({
  clock = systemClock,
  otherName = 'other',
  isShared = false,
}: {
  clock?: ResumableClock;
  otherName?: string;
  isShared?: boolean;
} = {}) {
  const hosts = { own: new MemoryHost(systemClock), other: new MemoryHost(systemClock) };
  const cluster = {
    id: 'node_own',
    isServing: true,
    view: { nodes: [], shards: [] } as ClusterView,
  };
  const seen = { ownTerm: 0, otherTerm: 0 };
  const agentOf = (host: MemoryHost, readTerm: () => number) =>
    new MachineAgent({
      ...{ engine: new MemoryEngine(host), workerFolders: undefined, readTerm },
      readUse: async () => ({ endpoints: new Set(), pods: new Map() }),
    });
  const otherAgent = agentOf(hosts.other, () => seen.otherTerm);
  const calls = { lost: false, creating: Promise.resolve() };
  const { owner } = await startNodes({
    forwarding: {
      async onCall(name, body) {
        if (calls.lost) throw new Error('the call is lost');
        if (name === 'describe') return describeMachine(otherName);
        const parsed = machineBody.parse(body);
        if (parsed.act.verb === 'create') await calls.creating;
        return otherAgent.answer(parsed);
      },
    },
  });
  const client = new NodeClient({ secrets: [SECRET] });
  onTestFinished(() => client.close());
  const node = { isLive: true, isLeaving: false, version: 1, controlNumber: 0 };
  const setView = (epoch: number, { hasOther = true, leader = 'node_own' } = {}) => {
    const own = { ...node, id: 'node_own', url: 'http://127.0.0.1:1' };
    const other = { ...node, id: 'node_other', url: owner.nodeUrl, isLive: hasOther };
    const shard = { id: 0, owner: leader, offeredTo: null, failedOn: null, epoch };
    cluster.view = { nodes: [own, other], shards: [shard] };
    machines.follow(cluster.view);
  };
  let changes = 0;
  const term = new LeadTerm(cluster);
  const machines = new Machines({
    ...{ cluster, client, clock, isShared, log: silentLog },
    agent: agentOf(hosts.own, () => seen.ownTerm),
    term,
  });
  machines.onChange(() => {
    changes += 1;
  });
  setView(1);
  const begin = () => machines.begin(describeMachine('own'));
  await begin();
  return {
    begin,
    machines,
    term,
    hosts,
    cluster,
    seen,
    calls,
    setView,
    countChanges: () => changes,
  };
}

const refusal = { name: 'EngineError', code: 'unavailable' };

describe('the machines of nodes', () => {
  it('are found with their limits, and do what the leader asks for', async () => {
    const { hosts, machines } = await startMachines();
    expect(machines.listMachines()).toEqual([
      { node: 'own', limits: LIMITS },
      { node: 'other', limits: LIMITS },
    ]);
    for (const name of ['own', 'other']) {
      await machines.act(name, { verb: 'create', spec: specOf(`pod_${name}`) });
    }
    expect(hosts.own.get('pod_own').spec.env).toEqual({ A: 'b' });
    expect(hosts.other.get('pod_other').spec).toEqual(specOf('pod_other'));
  });

  it('pass errors of engines on with their code', async () => {
    const { machines } = await startMachines();
    const spec = { ...specOf('pod_a'), image: 'missing' };
    const refused = machines.act('other', { verb: 'create', spec });
    await expect(refused).rejects.toThrow(
      new EngineError('refused', 'there is no image "missing"'),
    );
  });

  it('answer while many of their pods wait for slow images', async () => {
    const { calls, hosts, machines } = await startMachines();
    const arrived = Promise.withResolvers<void>();
    calls.creating = arrived.promise;
    const creations = Array.from({ length: 20 }, (_, index) =>
      machines.act('other', { verb: 'create', spec: specOf(`pod_${index}`) }),
    );
    expect(await machines.act('other', { verb: 'list' })).toEqual([]);
    arrived.resolve();
    await Promise.all(creations);
    expect(hosts.other.containers.size).toBe(20);
  });

  it('refuse an older leader once a newer one has called, or is known', async () => {
    const { hosts, machines, seen } = await startMachines();
    seen.otherTerm = 2;
    seen.ownTerm = 2;
    for (const name of ['own', 'other']) {
      const late = machines.act(name, { verb: 'create', spec: specOf('pod_a') });
      await expect(late).rejects.toMatchObject(refusal);
    }
    expect([hosts.own.containers.size, hosts.other.containers.size]).toEqual([0, 0]);
  });

  it('are not called by a leader without a lease, or that another node has replaced', async () => {
    const { cluster, hosts, machines, setView } = await startMachines();
    const act = () => machines.act('other', { verb: 'create', spec: specOf('pod_a') });
    cluster.isServing = false;
    await expect(act()).rejects.toMatchObject(refusal);
    cluster.isServing = true;
    setView(2, { leader: 'node_other' });
    await expect(act()).rejects.toMatchObject(refusal);
    machines.end();
    await expect(act()).rejects.toMatchObject(refusal);
    expect(hosts.other.containers.size).toBe(0);
  });

  it('end a change of several requests when its leader is replaced, also if it leads again', async () => {
    const { begin, cluster, machines, setView, term } = await startMachines();
    const fence = term.openFence();
    fence();
    cluster.isServing = false;
    expect(fence).toThrow(expect.objectContaining(refusal));
    expect(() => term.openFence()).toThrow(expect.objectContaining(refusal));
    cluster.isServing = true;
    setView(2, { leader: 'node_other' });
    expect(fence).toThrow(expect.objectContaining(refusal));
    machines.end();
    setView(3);
    await begin();
    expect(fence).toThrow(expect.objectContaining(refusal));
    term.openFence()();
  });

  it('are gone with their node, and found again under the same name', async () => {
    const { countChanges, machines, setView } = await startMachines();
    expect(machines.findUnreachable({ node: 'other' })).toBeUndefined();
    const before = countChanges();
    setView(1, { hasOther: false });
    expect(countChanges()).toBe(before + 1);
    expect(machines.findUnreachable({ node: 'other' })).toEqual({
      ...{ why: 'node other is gone', isGone: true },
    });
    expect(machines.findUnreachable({ node: 'own' })).toBeUndefined();
    expect(machines.listMachines().map(({ node }) => node)).toEqual(['own']);
    setView(1);
    await expect.poll(() => machines.findUnreachable({ node: 'other' })).toBeUndefined();
  });

  it('are not called gone while a live node has not told its name', async () => {
    const { calls, machines, setView } = await startMachines();
    setView(1, { hasOther: false });
    calls.lost = true;
    setView(1);
    expect(machines.findUnreachable({ node: 'other' })).toEqual({
      ...{ why: 'node other does not answer', isGone: false },
    });
  });

  it('are unused if two have the same name', async () => {
    const { machines } = await startMachines({ otherName: 'own' });
    expect(machines.listMachines()).toEqual([]);
    expect(machines.findUnreachable({ node: 'own' })).toMatchObject({ isGone: false });
    await expect(machines.act('own', { verb: 'list' })).rejects.toMatchObject(refusal);
  });

  it('are one if they are shared, which its leader reaches whatever other nodes are there', async () => {
    const { hosts, machines, setView } = await startMachines({ otherName: 'own', isShared: true });
    expect(machines.listMachines()).toEqual([{ node: 'own', limits: LIMITS }]);
    await machines.act('own', { verb: 'create', spec: specOf('pod_a') });
    expect(hosts.own.get('pod_a').spec).toEqual(specOf('pod_a'));
    setView(1, { hasOther: false });
    expect(machines.findUnreachable({ node: 'own' })).toBeUndefined();
    expect(machines.findUnreachable({ node: 'former' })).toEqual({
      ...{ why: 'node former is gone', isGone: true },
    });
  });

  it('get no new pods while their engine does not answer', async () => {
    const { hosts, machines } = await startMachines();
    const engine = new NodesEngine({
      ...{
        kind: 'docker',
        capabilities: () => DOCKER_CAPABILITIES,
        hasStateVolumes: false,
        machines,
        log: silentLog,
      },
      ...{ findPod: () => undefined, bind: async () => {}, watchOwn: () => () => {} },
    });
    hosts.other.trouble = new EngineError('unavailable', 'it is away');
    expect(await engine.list()).toEqual([]);
    expect(machines.listMachines().map(({ node }) => node)).toEqual(['own']);
    hosts.other.trouble = undefined;
    await engine.list();
    expect(machines.listMachines()).toHaveLength(2);
  });

  it('do not count as called for the removal of a volume while none answers', async () => {
    const engine = new NodesEngine({
      ...{ kind: 'docker', hasStateVolumes: false, log: silentLog },
      capabilities: () => DOCKER_CAPABILITIES,
      machines: { names: [], act: async () => null, noteList: () => {} },
      ...{ findPod: () => undefined, bind: async () => {}, watchOwn: () => () => {} },
    });
    await expect(engine.networkVolumes.remove('vol_1')).rejects.toThrow('no node answers');
  });

  it('have all open calls broken off when another node leads', async () => {
    const { machines } = await startMachines({ clock: new ManualClock() });
    const list = vi.spyOn(MemoryEngine.prototype, 'list');
    onTestFinished(() => list.mockRestore());
    list.mockImplementation(() => new Promise(() => {}));
    const listing = ['own', 'other'].map((name) => machines.act(name, { verb: 'list' }));
    await expect.poll(() => list.mock.calls.length).toBe(2);
    machines.end();
    for (const each of listing) await expect(each).rejects.toMatchObject(refusal);
  });

  it('do not keep a pass waiting if the engine of the leader itself hangs', async () => {
    const clock = new ManualClock();
    const { hosts, machines } = await startMachines({ clock });
    const engine = new NodesEngine({
      ...{
        kind: 'docker',
        capabilities: () => DOCKER_CAPABILITIES,
        hasStateVolumes: false,
        machines,
        log: silentLog,
      },
      ...{ findPod: () => ({ node: 'other' }), bind: async () => {}, watchOwn: () => () => {} },
    });
    hosts.other.create(specOf('pod_a'));
    // Of the two engines, the leader's own is the first to be called.
    const list = vi.spyOn(MemoryEngine.prototype, 'list');
    onTestFinished(() => list.mockRestore());
    list.mockImplementationOnce(() => new Promise(() => {}));
    const listing = engine.list();
    await expect.poll(() => list.mock.settledResults.length).toBe(2);
    await clock.advance(5_000);
    expect((await listing).map(({ id }) => id)).toEqual(['pod_a']);
    expect(machines.listMachines().map(({ node }) => node)).toEqual(['other']);
    await clock.advance(8_000);
    expect(machines.findUnreachable({ node: 'own' })).toMatchObject({ isGone: false });
  });
});

describe('the agent of a machine', () => {
  const create = (key: string): MachineAct => ({
    verb: 'create',
    spec: { ...specOf('pod_a'), env: { KEY: key } },
  });

  it('makes a container for the last of two creations, whose key is the valid one', async () => {
    const { hosts, machines } = await startMachines();
    await Promise.all(['first', 'second'].map((key) => machines.act('own', create(key))));
    expect(hosts.own.get('pod_a').spec.env).toEqual({ KEY: 'second' });
  });

  it('keeps a container that has run', async () => {
    const { hosts, machines } = await startMachines();
    await machines.act('own', create('first'));
    await machines.act('own', { verb: 'start', id: 'pod_a' });
    hosts.own.end('pod_a', 0);
    await machines.act('own', create('second'));
    expect(hosts.own.get('pod_a').spec.env).toEqual({ KEY: 'first' });
  });
});

describe('the engines of nodes as one', () => {
  async function startEngine(pods: Record<string, { node?: string }>) {
    const started = await startMachines();
    const engine = new NodesEngine({
      ...{
        kind: 'docker',
        capabilities: () => DOCKER_CAPABILITIES,
        hasStateVolumes: false,
        log: silentLog,
        machines: started.machines,
      },
      findPod: (id) => pods[id],
      async bind(id, node) {
        pods[id] = { node };
      },
      watchOwn: () => () => {},
    });
    return { ...started, engine };
  }

  it('act on the machine of the node of each pod', async () => {
    const { engine, hosts } = await startEngine({
      pod_a: { node: 'own' },
      pod_b: { node: 'other' },
    });
    for (const id of ['pod_a', 'pod_b']) {
      await engine.create(specOf(id));
      await engine.start(id);
      expect(await engine.inspect(id)).toMatchObject({ id, state: 'running' });
      expect(await engine.stats(id)).toMatchObject({ cpu: 12.4 });
      expect(new TextDecoder().decode(await engine.readLog(id, 100))).toBe(`printed by ${id}\n`);
    }
    expect([...hosts.own.containers.keys()]).toEqual(['pod_a']);
    expect([...hosts.other.containers.keys()]).toEqual(['pod_b']);
    expect((await engine.list()).map(({ id }) => id).toSorted()).toEqual(['pod_a', 'pod_b']);
    await engine.stop('pod_b', 1_000);
    await engine.remove('pod_b', 'remove');
    expect(await engine.inspect('pod_b')).toBeUndefined();
  });

  it('start a pod with other GPUs than before', async () => {
    const { engine, hosts } = await startEngine({ pod_b: { node: 'other' } });
    hosts.other.gpusAtStart = true;
    await engine.create({ ...specOf('pod_b'), gpus: ['g1'] });
    await engine.start('pod_b', ['g2']);
    expect(await engine.inspect('pod_b')).toMatchObject({ gpus: ['g2'], gpusAtStart: true });
  });

  it('list and remove containers without a pod', async () => {
    const { engine, hosts } = await startEngine({});
    hosts.other.create(specOf('pod_a'));
    expect(await engine.list()).toMatchObject([{ id: 'pod_a' }]);
    await engine.remove('pod_a', 'keep');
    expect(hosts.other.containers.size).toBe(0);
  });

  it('remove the container of a pod of another node, and never list it', async () => {
    const { engine, hosts } = await startEngine({ pod_a: { node: 'own' } });
    hosts.own.create(specOf('pod_a'));
    hosts.other.create(specOf('pod_a'));
    expect(await engine.list()).toHaveLength(1);
    expect([hosts.own.containers.size, hosts.other.containers.size]).toEqual([1, 0]);
  });

  it('bind a pod of a platform without nodes to the node that has its container', async () => {
    const pods: Record<string, { node?: string }> = { pod_a: {} };
    const { engine, hosts } = await startEngine(pods);
    await expect(engine.create(specOf('pod_a'))).rejects.toMatchObject(refusal);
    hosts.other.create(specOf('pod_a'));
    expect(await engine.list()).toHaveLength(1);
    expect(pods).toEqual({ pod_a: { node: 'other' } });
  });
});

it('changes a container one step at a time', async () => {
  const host = new MemoryHost(systemClock);
  const steps: string[] = [];
  const engine = new MemoryEngine(host);
  const created = Promise.withResolvers<void>();
  engine.create = async () => {
    steps.push('create begins');
    await created.promise;
    steps.push('create ends');
  };
  engine.remove = async () => {
    steps.push('remove');
  };
  const agent = new MachineAgent({
    ...{ engine, workerFolders: undefined, readTerm: () => 0 },
    readUse: async () => ({ endpoints: new Set(), pods: new Map() }),
  });
  const first = agent.answer({ term: 1, act: { verb: 'create', spec: specOf('pod_a') } });
  const second = agent.answer({ term: 2, act: { verb: 'remove', id: 'pod_a', volumes: 'keep' } });
  await agent.answer({ term: 2, act: { verb: 'list' } });
  created.resolve();
  await Promise.all([first, second]);
  expect(steps).toEqual(['create begins', 'create ends', 'remove']);
});
