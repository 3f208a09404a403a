// A platform process is paused at any request of any verb, another process takes over, and the first one wakes up: the
// container of the second one runs on.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { silentLog } from '../../../../src/base/log.ts';
import { EngineError } from '../../../../src/engine/engine.ts';
import { KubernetesEngine } from '../../../../src/engine/kubernetes/kubernetes-engine.ts';
import { kubernetesSettings } from '../../../../src/engine/kubernetes/settings.ts';
import { startCluster, writeKubeconfig } from '../../../support/kubernetes/cluster.ts';
import { POD_LABEL } from '../../../support/kubernetes/kube-platform.ts';

const PLATFORM = 'paused';
/** More than any verb makes. */
const MAX_REQUESTS = 7;
const GRACE_MS = 10_000;

let started: Awaited<ReturnType<typeof startCluster>>;
let namespace: string;
let folder: string;
let successor: KubernetesEngine;
const engines: KubernetesEngine[] = [];
/** By token of a paused process: what each of its requests waits for. */
const held = new Map<string, (method: string) => Promise<void> | undefined>();

beforeAll(async () => {
  started = await startCluster({ secondMs: 50 });
  namespace = await started.cluster.createNamespace();
  started.api.hold = (token, method) => held.get(token)?.(method);
  folder = await mkdtemp(join(tmpdir(), 'millrace-kube-'));
  successor = await open(started.cluster.access.token);
});

afterAll(async () => {
  for (const engine of engines) await engine.close();
  await started.cluster.close();
  await rm(folder, { recursive: true, force: true });
});

async function open(token: string, openFence?: () => () => void): Promise<KubernetesEngine> {
  started.api.allowToken(token);
  const kubeconfig = join(folder, token);
  await writeKubeconfig(kubeconfig, { ...started.cluster.access, token }, namespace);
  const engine = new KubernetesEngine({
    ...{ platform: PLATFORM, access: { kubeconfig, environment: {} }, openFence, log: silentLog },
    ...{ settings: kubernetesSettings.parse({}), startWaitMs: GRACE_MS },
  });
  engines.push(engine);
  return engine;
}

const specOf = (id: string, generation: number) => ({
  ...{ id, generation, labels: {}, image: 'none', args: 'sleep 1000', handler: null, env: {} },
  ...{ ports: [], diskGb: 1, registry: null, mounts: [], gpus: [], limits: null, network: null },
});

async function run(engine: KubernetesEngine, id: string, generation: number): Promise<void> {
  await engine.create(specOf(id, generation));
  await engine.start(id);
}

/** The container as the next process sees it, and the objects of this generation. */
async function look(id: string, generation: number) {
  const { admin } = started.cluster;
  const selector = `labelSelector=${POD_LABEL}%3D${id}`;
  const [pods, secrets] = await Promise.all(
    ['pods', 'secrets'].map(async (kind) => {
      const { items } = await admin.list(`/api/v1/namespaces/${namespace}/${kind}?${selector}`);
      return items.filter(({ metadata }) => metadata.name.endsWith(`-${generation}`));
    }),
  );
  return {
    container: await successor.inspect(id),
    pods: pods?.map(({ metadata, spec }) => [metadata.uid, spec?.['activeDeadlineSeconds']]),
    secrets: secrets?.map(({ metadata }) => metadata.uid),
  };
}

interface Case {
  /** Of the process that is paused. */
  verb: (engine: KubernetesEngine, id: string) => Promise<void>;
  prepare: (id: string) => Promise<void>;
  /** What the other process does meanwhile; at its end the container runs. */
  meanwhile: (id: string) => Promise<void>;
  generation: number;
}

const renew = async (id: string, generation: number) => {
  await successor.remove(id, 'keep');
  await run(successor, id, generation);
};
const start = (id: string) => run(successor, id, 1);

const cases: Record<string, Case> = {
  'creates a container': {
    prepare: async () => {},
    verb: (engine, id) => engine.create(specOf(id, 1)),
    meanwhile: (id) => renew(id, 2),
    generation: 2,
  },
  'starts a container': {
    prepare: (id) => successor.create(specOf(id, 1)),
    verb: (engine, id) => engine.start(id),
    meanwhile: (id) => renew(id, 2),
    generation: 2,
  },
  'stops a container that is started again': {
    prepare: start,
    verb: (engine, id) => engine.stop(id, GRACE_MS),
    meanwhile: async (id) => {
      await successor.stop(id, GRACE_MS);
      await successor.start(id);
    },
    generation: 1,
  },
  'removes a container that has a successor': {
    prepare: start,
    verb: (engine, id) => engine.remove(id, 'keep'),
    meanwhile: (id) => renew(id, 2),
    generation: 2,
  },
  'removes a container that is made anew': {
    prepare: start,
    verb: (engine, id) => engine.remove(id, 'keep'),
    meanwhile: (id) => renew(id, 1),
    generation: 1,
  },
};

/** @returns whether the verb made so many requests */
async function play(name: string, index: number, each: Case): Promise<boolean> {
  const token = `${name.replaceAll(' ', '-')}-${index}`;
  const id = `pod_${token}`;
  await each.prepare(id);
  let isReplaced = false;
  const engine = await open(token, () => () => {
    if (isReplaced) throw new EngineError('unavailable', 'replaced');
  });
  let wake = () => {};
  const paused = new Promise<boolean>((resolve) => {
    let count = 0;
    held.set(token, () => {
      count += 1;
      if (count !== index) return undefined;
      resolve(true);
      return new Promise((awake) => {
        wake = awake;
      });
    });
    const ended = each.verb(engine, id).catch(() => {});
    void ended.then(() => resolve(false));
    endings.set(token, ended);
  });
  const wasPaused = await paused;
  isReplaced = true;
  await each.meanwhile(id);
  const before = await look(id, each.generation);
  expect(before.container).toMatchObject({ state: 'running', generation: each.generation });
  wake();
  await endings.get(token);
  expect([token, await look(id, each.generation)]).toEqual([token, before]);
  await successor.remove(id, 'keep');
  expect(await successor.inspect(id)).toBeUndefined();
  return wasPaused;
}

const endings = new Map<string, Promise<void>>();

describe('a process that was paused while it', () => {
  it.each(Object.entries(cases))('%s changes nothing of the next process', async (name, each) => {
    const all = Array.from({ length: MAX_REQUESTS }, (_, index) => play(name, index + 1, each));
    const paused = await Promise.all(all);
    expect(paused.filter(Boolean).length).toBeGreaterThan(2);
  });
});
