// Reads an event stream in a test, event by event.
import { createParser } from 'eventsource-parser';
import { onTestFinished } from 'vitest';
import { z } from 'zod';

export const topicEvent = z.object({
  topic: z.string(),
  data: z.looseObject({}).optional(),
  problem: z.looseObject({ code: z.string() }).optional(),
  final: z.boolean().optional(),
});
export type TopicEvent = z.infer<typeof topicEvent>;

export interface EventReader {
  response: Response;
  /** The next event; undefined at the end of the stream. */
  next: () => Promise<TopicEvent | undefined>;
  close: () => void;
}

/** Ends with the test. */
export async function readEvents(
  url: string,
  headers: Record<string, string>,
): Promise<EventReader> {
  const abort = new AbortController();
  onTestFinished(() => abort.abort());
  const response = await fetch(url, { headers, signal: abort.signal });
  const found: TopicEvent[] = [];
  const parser = createParser({
    onEvent: ({ data }) => found.push(topicEvent.parse(JSON.parse(data))),
  });
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  const next = async (): Promise<TopicEvent | undefined> => {
    for (;;) {
      const event = found.shift();
      if (event) return event;
      const part = await reader?.read().catch(() => undefined);
      if (!part || part.done) return undefined;
      parser.feed(part.value);
    }
  };
  return { response, next, close: () => abort.abort() };
}
