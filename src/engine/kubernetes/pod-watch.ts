// Reads the changes of the platform's Pods, and why a Pod does not start.
import { z } from 'zod';
import { type ChangeStream, readDocuments } from '../answers.ts';
import type { ContainerWait } from '../engine.ts';
import type { ApiClient } from './api-client.ts';
import { POD_LABEL } from './names.ts';
import { boundedText, podList } from './pod-view.ts';

/** The list after it finds what a watch that hangs has not told, seconds. */
const WATCH_S = 60;
/** Beyond that, a watch that does not end by itself is given up, ms. */
const SLACK_MS = 10_000;

const podLabels = z.object({
  metadata: z.object({ labels: z.record(z.string(), z.string()).optional() }).optional(),
});

const change = z.object({ type: z.string(), object: podLabels });

interface PodWatch {
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
    method: 'GET',
    path,
    signal: AbortSignal.any([signal, limit]),
    query: {
      labelSelector,
      watch: 'true',
      allowWatchBookmarks: 'true',
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

const eventList = z.object({
  items: z.array(
    z.object({
      type: z.string().optional(),
      reason: z.string().optional(),
      message: boundedText.optional(),
      lastTimestamp: z.string().nullish(),
      eventTime: z.string().nullish(),
      metadata: z.object({ creationTimestamp: z.string().nullish() }).optional(),
    }),
  ),
});
type PodEvent = z.infer<typeof eventList>['items'][number];

/**
 * Why a Pod does not start, by its Events, for what its own status does not tell; undefined without a warning.
 * @throws KubernetesError, EngineError
 */
export async function findWarning(
  client: ApiClient,
  uid: string,
): Promise<ContainerWait | undefined> {
  const query = { fieldSelector: `involvedObject.uid=${uid}`, limit: '100' };
  const answer = await client.ask({ method: 'GET', path: await client.pathOf('events'), query });
  return readWarning(eventList.parse(answer).items);
}

export function readWarning(events: readonly PodEvent[]): ContainerWait | undefined {
  const warnings = events.filter(({ type }) => type === 'Warning');
  const [last] = warnings.sort((a, b) => timeOf(b) - timeOf(a));
  if (!last) return undefined;
  const { message = '', reason = '' } = last;
  if (reason === 'FailedScheduling') {
    const detail = `the cluster has no capacity for it: ${message}`;
    return { cause: 'capacity', message: detail, isFinal: false };
  }
  return { cause: 'other', message: `it does not start: ${message || reason}`, isFinal: false };
}

function timeOf({ eventTime, lastTimestamp, metadata }: PodEvent): number {
  return Date.parse(lastTimestamp ?? eventTime ?? metadata?.creationTimestamp ?? '') || 0;
}
