// Parses a stream of JSON documents, one per line, such as an engine's events.
import { iterateLines } from '../base/text/line-reader.ts';

/** Of one document; the largest ones are Pods with their annotations. */
const MAX_LINE_CHARS = 4 * 1_048_576;

/** @throws Error for a line that is too long or no JSON */
export async function* readDocuments(
  stream: AsyncIterable<string | Buffer>,
): AsyncGenerator<unknown> {
  for await (const line of iterateLines(stream, MAX_LINE_CHARS)) {
    if (line.trim() !== '') yield JSON.parse(line);
  }
}
