// Finds why a Pod does not start among its Events, for what its own status does not tell. Pure but for the call.
import { z } from 'zod';
import type { ContainerWait } from '../engine.ts';
import type { ApiClient } from './api-client.ts';
import { boundedText } from './pod-view.ts';

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

/** Undefined without a warning. @throws KubernetesError, EngineError */
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
