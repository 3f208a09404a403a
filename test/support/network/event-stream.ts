// A minimal client of server-sent events.

export interface ServerEvent {
  /** `message` when the event names none. */
  event: string;
  id: string | undefined;
  data: string;
}

/** Yields the events of an answer, without comments and `retry:`, until it ends. */
export async function* readEvents(response: Response): AsyncGenerator<ServerEvent, void, void> {
  if (!response.body) throw new Error('the answer has no body');
  let pending = '';
  for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
    pending += text;
    const blocks = pending.split('\n\n');
    pending = blocks.pop() ?? '';
    for (const block of blocks) {
      const event = parseEvent(block);
      if (event) yield event;
    }
  }
  if (pending !== '') throw new Error(`the stream ended within an event: ${pending.slice(0, 200)}`);
}

function parseEvent(block: string): ServerEvent | undefined {
  const fields = new Map<string, string>();
  for (const line of block.split('\n')) {
    const [, name, value] = /^([a-z]*): ?(.*)$/s.exec(line) ?? [];
    if (name !== undefined && value !== undefined) fields.set(name, value);
  }
  const data = fields.get('data');
  if (data === undefined) return undefined;
  return { event: fields.get('event') ?? 'message', id: fields.get('id'), data };
}
