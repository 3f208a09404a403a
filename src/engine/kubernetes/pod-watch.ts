// Reads the changes of the platform's Pods: lists all, then watches from there. A watch that ends, breaks off or has
// expired is the same: the next one begins with a list.
import { z } from 'zod';
import type { ChangeStream } from '../change-feed.ts';
import { readDocuments } from '../json-lines.ts';
import type { ApiClient } from './api-client.ts';
import { POD_LABEL } from './names.ts';
import { podList } from './pod-view.ts';

/** The list after it finds what a watch that hangs has not told, seconds. */
const WATCH_S = 60;
/** Beyond that, a watch that does not end by itself is given up, ms. */
const SLACK_MS = 10_000;

const podLabels = z.object({
  metadata: z.object({ labels: z.record(z.string(), z.string()).optional() }).optional(),
});

const change = z.object({ type: z.string(), object: podLabels });

export interface PodWatch {
  client: ApiClient;
  /** Label selector of the platform's Pods. */
  labelSelector: string;
}

/** @throws Error if the API server does not answer, or ends the watch with an error */
export async function watchPods(watch: PodWatch, stream: ChangeStream): Promise<void> {
  const { client, labelSelector } = watch;
  const { signal } = stream;
  const path = await client.pathOf('pods');
  const answer = await client.ask({ method: 'GET', path, query: { labelSelector }, signal });
  const { items, metadata } = podList.parse(answer);
  for (const item of items) reportPod(item, stream);
  const limit = AbortSignal.timeout(WATCH_S * 1_000 + SLACK_MS);
  const { body } = await client.open({
    ...{ method: 'GET', path, signal: AbortSignal.any([signal, limit]) },
    query: {
      ...{ labelSelector, watch: 'true', allowWatchBookmarks: 'true' },
      timeoutSeconds: `${WATCH_S}`,
      ...(metadata?.resourceVersion !== undefined && {
        resourceVersion: metadata.resourceVersion,
      }),
    },
  });
  stream.opened();
  for await (const document of readDocuments(body)) {
    const { object, type } = change.parse(document);
    // 410 Gone: the changes since the list are not kept any more.
    if (type === 'ERROR') {
      throw new Error(`the watch ended: ${JSON.stringify(document).slice(0, 500)}`);
    }
    if (type !== 'BOOKMARK') reportPod(object, stream);
  }
}

function reportPod({ metadata }: z.infer<typeof podLabels>, stream: ChangeStream): void {
  const id = metadata?.labels?.[POD_LABEL];
  if (id !== undefined) stream.changed(id);
}
