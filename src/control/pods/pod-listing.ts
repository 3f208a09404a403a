// Lists a user's pods page by page, terminated ones included.
import type { Store, StoredResource } from '../../store/store.ts';
import { type PageBounds, PageCutter } from '../list-page.ts';
import type { LivePods } from './live-pods.ts';
import type { PodState } from './pod-state.ts';

/** Records read from the store in one operation. */
const READ_AT_ONCE = 50;

export interface PodListing extends PageBounds {
  userId: string;
  /** Only pods with a smaller position: newest first. */
  before?: number | undefined;
}

export interface PodSources {
  store: Store;
  /** Pods in memory, with their current state. */
  live: LivePods;
}

export async function listPods(
  { before, userId, ...bounds }: PodListing,
  { live, store }: PodSources,
): Promise<{ pods: PodState[]; next?: number }> {
  const cutter = new PageCutter(bounds);
  const pods: PodState[] = [];
  let next = before;
  for await (const resource of listStored(store, userId, before)) {
    const pod = live.get(resource.id) ?? live.read(resource);
    if (!cutter.take(pod)) return next === undefined ? { pods } : { pods, next };
    pods.push(pod);
    next = resource.position;
  }
  return { pods };
}

/** Newest first, a few at a time, because records can be large. */
async function* listStored(
  store: Store,
  userId: string,
  before: number | undefined,
): AsyncGenerator<StoredResource> {
  let last = before;
  do {
    const wanted = { kind: 'pod', userId, before: last, limit: READ_AT_ONCE } as const;
    const stored = await store.read((tx) => tx.resources(wanted));
    yield* stored;
    last = stored.length < READ_AT_ONCE ? undefined : stored.at(-1)?.position;
  } while (last !== undefined);
}
