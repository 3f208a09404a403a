// Reads server-sent events from bytes, in packets of any size. The meaning of the events is the caller's.
import { createParser, type EventSourceMessage } from 'eventsource-parser';

export interface ServerEvent {
  /** `message` unless the server named it. */
  event: string;
  data: string;
}

/** Longest event, in characters: a bound on the memory that a broken server can fill. */
const MAX_EVENT_CHARACTERS = 16_000_000;

/**
 * The events of a `text/event-stream`. An event that the end of the stream cut off before its blank
 * line counts too, because some servers never send the last one.
 *
 * @throws Error if one event is longer than 16,000,000 characters.
 */
export async function* readServerEvents(
  body: AsyncIterable<Uint8Array>,
): AsyncGenerator<ServerEvent, void, void> {
  const decoder = new TextDecoder();
  const found: EventSourceMessage[] = [];
  const parser = createParser({
    maxBufferSize: MAX_EVENT_CHARACTERS,
    onEvent: (event) => found.push(event),
    onError({ type }) {
      if (type !== 'max-buffer-size-exceeded') return;
      throw new Error(`an event is longer than ${MAX_EVENT_CHARACTERS} characters`);
    },
  });
  const take = () =>
    found.splice(0).map(({ data, event = '' }) => ({ event: event || 'message', data }));
  for await (const bytes of body) {
    parser.feed(decoder.decode(bytes, { stream: true }));
    yield* take();
  }
  parser.feed(`${decoder.decode()}\n\n`);
  yield* take();
}
