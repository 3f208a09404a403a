// Parses a stream of JSON documents, one per line, such as an engine's events.
import { iterateLines } from '../../base/text/line-reader.ts';

export async function* readDocuments(
  stream: AsyncIterable<string | Buffer>,
): AsyncGenerator<unknown> {
  for await (const line of iterateLines(stream)) if (line.trim() !== '') yield JSON.parse(line);
}
