// Turns the chunks of a job into the server-sent events of the OpenAI API. Chunks are raw lines of events, as
// vLLM writes them, or objects.
import { describeError, FailedStream, findError, type OpenAiError } from './errors.ts';

export const DONE_EVENT = 'data: [DONE]\n\n';

const DONE = /^data:\s*\[DONE\]\s*$/;
const DATA = /^data:/;
const COMMENT = /^:/;
const FIELD = /^(?:event|id|retry):/;

/** The events of one chunk. */
export interface Events {
  text: string;
  /** The chunk has the event that ends the stream; it is not part of `text`. */
  isDone: boolean;
}

/**
 * Each line `data: …` of a text is one event, with or without an empty line behind it. The elements of an array
 * are events of their own. @throws FailedStream if they cannot be sent as events
 */
export function encodeEvents(output: unknown): Events {
  if (Array.isArray(output)) {
    const all = output.map(encodeOne);
    return { text: all.map(({ text }) => text).join(''), isDone: all.some((each) => each.isDone) };
  }
  return encodeOne(output);
}

function encodeOne(output: unknown): Events {
  if (typeof output === 'string') return encodeText(output);
  if (typeof output === 'object' && output !== null) {
    return { text: `data: ${JSON.stringify(output)}\n\n`, isDone: false };
  }
  throw refuse('The handler yielded a chunk that is neither a text nor an object.');
}

function encodeText(text: string): Events {
  if (text.trimStart().startsWith('{')) return encodeOne(parseObject(text));
  let events = '';
  let isDone = false;
  for (const line of text.split(/\r\n|\r|\n/)) {
    if (DONE.test(line)) isDone = true;
    else if (DATA.test(line) || COMMENT.test(line)) events += `${line}\n\n`;
    else if (FIELD.test(line)) events += `${line}\n`;
    else if (line.trim() !== '') {
      throw refuse(
        'The handler yielded a text that is no server-sent event; yield lines `data: …`, or objects.',
      );
    }
  }
  return { text: events, isDone };
}

function refuse(detail: string): FailedStream {
  return new FailedStream(describeError(502, detail, 'output_invalid'));
}

function parseObject(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw refuse('The handler yielded a text that begins like JSON and is none.');
  }
}

/** The error that the first chunk of a stream is; undefined if it is none. */
export function findErrorChunk(output: unknown): OpenAiError | undefined {
  const first = Array.isArray(output) ? output[0] : output;
  if (typeof first !== 'string') return findError(first);
  const json = first.replace(DATA, '').trim();
  if (!json.startsWith('{') || !json.includes('error')) return undefined;
  try {
    return findError(JSON.parse(json));
  } catch {
    // Several events, or none: `encodeEvents` judges them.
    return undefined;
  }
}
