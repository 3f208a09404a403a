// Turns the chunks of a job into the server-sent events of the OpenAI API. Chunks are objects, or the text of an
// event stream as vLLM writes it, cut at any place.
import { isPlainObject } from '../../wire/json.ts';
import { describeError, FailedStream, findError, type OpenAiError } from './answers.ts';

export const DONE_EVENT = 'data: [DONE]\n\n';

/** Longest line that is kept until its end arrives; a chunk can be as large. */
const MAX_LINE_CHARS = 1_048_576;

const DONE = /^data:\s*\[DONE\]\s*$/;
const DATA = /^data:/;
const COMMENT = /^:/;
const FIELD = /^(?:event|id|retry):/;
/** A value that shows where it ends. */
const JSON_VALUE = /^data:\s*[[{]/;
/** Most characters of a line that these expressions need. */
const HEAD_CHARS = 64;

/** The events of one chunk. */
export interface Events {
  text: string;
  /** The chunk has the event that ends the stream; it is not part of `text`. */
  isDone: boolean;
}

/** Encodes the chunks of one attempt. A line may begin in one chunk and end in another. */
export class EventEncoder {
  /** The pieces of the line that has not ended yet. */
  #line: string[] = [];
  #lineChars = 0;
  #lineHead = '';

  /**
   * Each line `data: …` of a text is one event, with or without an empty line behind it. The elements of an array
   * are events of their own. @throws FailedStream if they cannot be sent as events
   */
  encode(output: unknown): Events {
    const all = (Array.isArray(output) ? output : [output]).map((one) => this.#encodeOne(one));
    return joinEvents(all);
  }

  /** The attempt is over: the last line needs no line break. @throws FailedStream as `encode` does */
  end(): Events {
    const line = this.#takeLine();
    if (JSON_VALUE.test(line) && parseJson(line.replace(DATA, '')) === undefined) {
      throw refuse('The handler ended in the middle of an event.');
    }
    return encodeLine(line);
  }

  #encodeOne(output: unknown): Events {
    if (typeof output === 'string') return this.#encodeText(output);
    if (typeof output !== 'object' || output === null) {
      throw refuse('The handler yielded a chunk that is neither a text nor an object.');
    }
    return joinEvents([this.end(), encodeObject(output)]);
  }

  #encodeText(text: string): Events {
    if (this.#lineChars === 0 && text.trimStart().startsWith('{')) {
      const object = parseJson(text);
      if (!isPlainObject(object)) {
        throw refuse('The handler yielded a text that begins like JSON and is none.');
      }
      return encodeObject(object);
    }
    const events: Events[] = [];
    if (this.#endsBefore(text)) events.push(this.end());
    const lines = text.split(/\r\n|\r|\n/);
    const rest = lines.pop() ?? '';
    for (const line of lines) {
      this.#keep(line);
      events.push(encodeLine(this.#takeLine()));
    }
    // A handler that yields whole lines need not end them: their events do not wait for the next chunk.
    if (isWhole(rest) && this.#lineChars === 0) events.push(encodeLine(rest));
    else this.#keep(rest);
    return joinEvents(events);
  }

  /** A chunk begins with a line of its own, so the line before it needed no line break. */
  #endsBefore(text: string): boolean {
    const head = this.#lineHead;
    const isLine = DATA.test(head) || COMMENT.test(head) || FIELD.test(head);
    return isLine && !JSON_VALUE.test(head) && (DATA.test(text) || FIELD.test(text));
  }

  #keep(piece: string): void {
    this.#lineChars += piece.length;
    if (this.#lineChars > MAX_LINE_CHARS) {
      const detail = `The handler yielded a line of more than ${MAX_LINE_CHARS} characters.`;
      throw new FailedStream(describeError(502, detail, 'output_too_large'));
    }
    if (piece !== '') this.#line.push(piece);
    if (this.#lineHead.length < HEAD_CHARS) this.#lineHead += piece.slice(0, HEAD_CHARS);
  }

  #takeLine(): string {
    const line = this.#line.join('');
    this.#line = [];
    this.#lineChars = 0;
    this.#lineHead = '';
    return line;
  }
}

/** A line that nothing can follow: more text would not be JSON. */
function isWhole(line: string): boolean {
  if (DONE.test(line)) return true;
  return JSON_VALUE.test(line) && parseJson(line.replace(DATA, '')) !== undefined;
}

function encodeLine(line: string): Events {
  if (DONE.test(line)) return { text: '', isDone: true };
  if (DATA.test(line) || COMMENT.test(line)) return { text: `${line}\n\n`, isDone: false };
  if (FIELD.test(line)) return { text: `${line}\n`, isDone: false };
  if (line.trim() === '') return { text: '', isDone: false };
  throw refuse(
    'The handler yielded a text that is no server-sent event; yield lines `data: …`, or objects.',
  );
}

function encodeObject(output: object): Events {
  return { text: `data: ${JSON.stringify(output)}\n\n`, isDone: false };
}

function joinEvents(all: readonly Events[]): Events {
  return { text: all.map(({ text }) => text).join(''), isDone: all.some(({ isDone }) => isDone) };
}

function refuse(detail: string): FailedStream {
  return new FailedStream(describeError(502, detail, 'output_invalid'));
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Returns the error if the first event is one. */
export function findErrorEvent(text: string): OpenAiError | undefined {
  const [, value = ''] = /^data:([^\n]*)/m.exec(text) ?? [];
  return value.includes('error') ? findError(parseJson(value)) : undefined;
}
