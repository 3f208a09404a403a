// Reads the engine's events, and reports containers that may have changed.
import { z } from 'zod';
import type { ChangeStream } from '../change-feed.ts';
import { readDocuments } from '../json-lines.ts';
import type { DockerClient } from './docker-client.ts';
import { PLATFORM_LABEL, POD_LABEL } from './labels.ts';

/** Health checks run commands in the container; each one creates events. */
const NO_CHANGE = /^exec_/;

const event = z.object({
  Action: z.string().optional(),
  Actor: z.object({ Attributes: z.record(z.string(), z.string()).nullish() }).optional(),
});

export interface EventWatch {
  client: DockerClient;
  platform: string;
  /** IDs of all containers. */
  listIds(): Promise<string[]>;
}

/** @throws Error if the engine does not answer */
export async function watchEvents(watch: EventWatch, stream: ChangeStream): Promise<void> {
  const { client, platform } = watch;
  const filters = { type: ['container'], label: [`${PLATFORM_LABEL}=${platform}`] };
  const query = { filters: JSON.stringify(filters) };
  const events = await client.open({ path: '/events', query }, stream.signal);
  stream.opened();
  // Only after the stream is open: later changes are then in the stream.
  const ids = await watch.listIds();
  for (const id of ids) stream.changed(id);
  for await (const document of readDocuments(events)) {
    const { Action = '', Actor } = event.parse(document);
    const id = Actor?.Attributes?.[POD_LABEL];
    if (id !== undefined && !NO_CHANGE.test(Action)) stream.changed(id);
  }
}
