// Keeps a copy of all objects of a path: list, watch, and both again when the watch ends.
import { setTimeout as sleep } from 'node:timers/promises';
import type { KubeClient } from './client.ts';
import { type KubeObject, objectSchema } from './objects.ts';

/** Pause after a watch that failed. */
const RETRY_MS = 20;

/** `path` may have a selector. Calls back with the objects by UID, after the list and after each change. Resolves when aborted. */
export async function watchAll(
  client: KubeClient,
  path: string,
  signal: AbortSignal,
  onChange: (objects: ReadonlyMap<string, KubeObject>) => void,
): Promise<void> {
  while (!signal.aborted) {
    try {
      const { items, version } = await client.list(path);
      const objects = new Map(items.map((each) => [each.metadata.uid, each]));
      onChange(objects);
      const query = `watch=true&resourceVersion=${version}&timeoutSeconds=300`;
      for await (const { object, type } of client.watch(
        `${path}${path.includes('?') ? '&' : '?'}${query}`,
        signal,
      )) {
        if (type === 'ERROR') break;
        if (type === 'BOOKMARK') continue;
        const changed = objectSchema.parse(object);
        if (type === 'DELETED') objects.delete(changed.metadata.uid);
        else objects.set(changed.metadata.uid, changed);
        onChange(objects);
      }
    } catch {
      // The connection broke, or the server refused: list again.
    }
    if (!signal.aborted) await sleep(RETRY_MS);
  }
}
