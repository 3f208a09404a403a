// Events of pods, and what a write may find changed.
import type { KubeClient } from '../client.ts';
import { KubeError } from '../objects.ts';
import { formatTime } from '../stand-in/object-store.ts';

export interface ReportedEvent {
  name: string;
  namespace: string;
  uid: string;
  reason: string;
  message: string;
}

export async function reportEvent(client: KubeClient, event: ReportedEvent): Promise<void> {
  const { message, name, namespace, reason, uid } = event;
  const now = formatTime(Date.now());
  const involvedObject = { kind: 'Pod', apiVersion: 'v1', name, namespace, uid };
  await client
    .create(`/api/v1/namespaces/${namespace}/events`, {
      metadata: { generateName: `${name}.`, namespace },
      involvedObject,
      reason,
      message,
      type: 'Warning',
      count: 1,
      firstTimestamp: now,
      lastTimestamp: now,
      source: { component: reason === 'FailedScheduling' ? 'default-scheduler' : 'kubelet' },
    })
    .catch(ignoreGone);
}

/** The object, or its namespace, went away meanwhile; another one of its name is not changed. */
export function ignoreGone(error: unknown): void {
  const isGone = error instanceof KubeError && [403, 404, 409, 422].includes(error.code);
  if (!isGone) throw error;
}
