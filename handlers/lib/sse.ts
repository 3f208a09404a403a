// Reads server-sent events from bytes, however they were cut into packets. Knows nothing of what
// the events mean.

export interface ServerEvent {
  /** `message` unless the server named it. */
  event: string;
  data: string;
}

/** Longest event, in characters: a bound on what a broken server can make us keep. */
const MAX_EVENT_CHARACTERS = 16_000_000;

/**
 * The events of a `text/event-stream`. Lines may end in LF, CR or CRLF, characters and line ends
 * may be cut by packets, comments are skipped. An event that the end of the stream cut off before
 * its blank line is given too: some servers never send the last one.
 *
 * @throws Error if one event is longer than 16,000,000 characters.
 */
export async function* readServerEvents(
  body: AsyncIterable<Uint8Array>,
): AsyncGenerator<ServerEvent, void, void> {
  const decoder = new TextDecoder();
  const lines = new LineReader();
  const event = new EventBuilder();
  for await (const bytes of body) {
    for (const line of lines.push(decoder.decode(bytes, { stream: true }))) {
      const finished = event.accept(line);
      if (finished !== undefined) yield finished;
    }
    if (lines.pendingCharacters + event.characters > MAX_EVENT_CHARACTERS) {
      throw new Error(`an event is longer than ${MAX_EVENT_CHARACTERS} characters`);
    }
  }
  for (const line of [...lines.push(decoder.decode()), lines.takeRest(), '']) {
    const finished = event.accept(line);
    if (finished !== undefined) yield finished;
  }
}

class LineReader {
  /** Pieces of the line that has no end yet; joined once, so that long lines cost no more. */
  #pending: string[] = [];
  #endedInCr = false;
  pendingCharacters = 0;

  push(text: string): string[] {
    if (text === '') return [];
    // The CR that ended the last packet may have been the first half of a CRLF.
    const fresh = this.#endedInCr && text.startsWith('\n') ? text.slice(1) : text;
    this.#endedInCr = text.endsWith('\r');
    const parts = fresh.split(/\r\n|\n|\r/);
    const rest = parts.pop() ?? '';
    const lines = parts.map((part) => this.takeRest() + part);
    if (rest !== '') {
      this.#pending.push(rest);
      this.pendingCharacters += rest.length;
    }
    return lines;
  }

  /** The unfinished line, which is empty from then on. */
  takeRest(): string {
    if (this.#pending.length === 0) return '';
    const rest = this.#pending.join('');
    this.#pending = [];
    this.pendingCharacters = 0;
    return rest;
  }
}

class EventBuilder {
  #event = '';
  #data: string[] = [];
  characters = 0;

  /** The event that this line ends, if it does. */
  accept(line: string): ServerEvent | undefined {
    if (line === '') return this.#finish();
    const colon = line.indexOf(':');
    const field = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'data') {
      this.#data.push(value);
      this.characters += value.length;
    } else if (field === 'event') {
      this.#event = value;
    }
    return undefined;
  }

  #finish(): ServerEvent | undefined {
    const finished =
      this.#data.length === 0
        ? undefined
        : { event: this.#event || 'message', data: this.#data.join('\n') };
    this.#event = '';
    this.#data = [];
    this.characters = 0;
    return finished;
  }
}
