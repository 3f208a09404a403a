// Creates, changes and deletes pods and volumes at random, on nodes that may fail, and notes when.
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { networkVolumeRecord } from '../../../src/wire/resources/network-volume.ts';
import type { AnyAnswer } from './any-answer.ts';

export interface Lives {
  caller: AnyAnswer;
  random: () => number;
  isOver: boolean;
  /** When the deletion of a pod was first asked for, Unix ms. */
  removed: Map<string, number>;
  volumes: VolumeLife[];
}

/** Times are Unix ms. Of a change, only the times before the request and after its effect was seen are known. */
export interface VolumeLife {
  id: string;
  createdAt: number;
  /** GB. */
  sizes: { size: number; from: number; seenAt: number }[];
  deleted: { from: number; seenAt: number };
}

const LONGEST_WAIT_MS = 4_000;
const MOST_ACTIONS = 4;
const MOST_GROWTHS = 3;
const GB = 1_000;
/** Ends at once when it is stopped. */
const LASTING = `sh -c 'trap "exit 0" TERM; while :; do sleep 1000 & wait; done'`;

const created = z.object({ id: z.string() });

/** Creates one pod after the other, each for a few actions. */
export async function liveAsPods(lives: Lives, name: string, spec: object): Promise<void> {
  const { caller, random, removed } = lives;
  for (let n = 0; !lives.isOver; n++) {
    const args = random() < 0.25 ? `sleep ${(random() * 3).toFixed(2)}` : LASTING;
    const body = { name: `${name}-${n}`, image: 'none', args, disk: 1, ...spec };
    const made = await caller.ask({ method: 'POST', path: '/v2/pods', body });
    if (made?.status !== 201) {
      await sleep(random() * LONGEST_WAIT_MS);
      continue;
    }
    const { id } = created.parse(made.body);
    for (let left = 1 + random() * MOST_ACTIONS; left > 0; left--) {
      await sleep(random() * LONGEST_WAIT_MS);
      const action = ['start', 'stop', 'restart'][Math.floor(random() * 3)];
      await caller.ask({ method: 'POST', path: `/v2/pods/${id}/action`, body: { action } });
    }
    removed.set(id, Date.now());
    await caller.insist({ method: 'DELETE', path: `/v2/pods/${id}` });
  }
}

/** Deletes pods whose creation was broken off. */
export async function removeAllPods({ caller, removed }: Lives): Promise<void> {
  const listed = z.object({ pods: z.array(z.object({ id: z.string(), status: z.string() })) });
  const { body } = await caller.insist({ path: '/v2/pods?limit=1000' });
  for (const { id, status } of listed.parse(body).pods) {
    if (status === 'TERMINATED') continue;
    if (!removed.has(id)) removed.set(id, Date.now());
    await caller.insist({ method: 'DELETE', path: `/v2/pods/${id}` });
  }
}

/** Creates one volume after the other, and grows each. */
export async function liveAsVolumes(lives: Lives, name: string): Promise<void> {
  const { caller, random, volumes } = lives;
  for (let n = 0; !lives.isOver; n++) {
    const body = { name: `${name}-${n}`, size: GB };
    const made = await caller.ask({ method: 'POST', path: '/v1/network-volumes', body });
    if (made?.status !== 201) {
      await sleep(random() * LONGEST_WAIT_MS);
      continue;
    }
    await live(lives, networkVolumeRecord.parse(made.body), volumes);
  }
}

/** Deletes volumes whose creation was broken off. */
export async function removeAllVolumes(lives: Lives): Promise<void> {
  const listed = z.object({ networkVolumes: z.array(networkVolumeRecord) });
  const { body } = await lives.caller.insist({ path: '/v1/network-volumes?limit=1000' });
  for (const volume of listed.parse(body).networkVolumes) {
    const { createdAt, id } = volume;
    const life = { id, createdAt: Date.parse(createdAt ?? ''), sizes: [] };
    lives.volumes.push({ ...life, deleted: await remove(lives, id) });
  }
}

async function live(
  lives: Lives,
  { createdAt, id }: z.infer<typeof networkVolumeRecord>,
  volumes: VolumeLife[],
): Promise<void> {
  const { random } = lives;
  const sizes: VolumeLife['sizes'] = [];
  for (let left = random() * MOST_GROWTHS; left > 1; left--) {
    await sleep(random() * LONGEST_WAIT_MS);
    const size = GB * (sizes.length + 2);
    sizes.push({ size, ...(await grow(lives, id, size)) });
  }
  await sleep(random() * LONGEST_WAIT_MS);
  const deleted = await remove(lives, id);
  volumes.push({ id, createdAt: Date.parse(createdAt ?? ''), sizes, deleted });
}

async function grow({ caller }: Lives, id: string, size: number) {
  const from = Date.now();
  const path = `/v1/network-volumes/${id}`;
  const { body, status } = await caller.insist({ method: 'PATCH', path, body: { size } });
  if (status !== 200) throw new Error(`${status}: ${JSON.stringify(body)}`);
  return { from, seenAt: Date.now() };
}

async function remove({ caller }: Lives, id: string) {
  const from = Date.now();
  const path = `/v1/network-volumes/${id}`;
  const { body, status } = await caller.insist({ method: 'DELETE', path });
  if (status !== 204 && status !== 404) throw new Error(`${status}: ${JSON.stringify(body)}`);
  return { from, seenAt: Date.now() };
}
