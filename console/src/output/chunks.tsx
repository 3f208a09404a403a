// The chunks of a stream as they come: the text that they make together, or one after the other. Only the last ones
// are drawn; the others can be saved.
import type { StreamChunk } from '../../../src/client.ts';
import { Block } from '../parts/block.tsx';
import { Download } from './download.tsx';
import { outline } from './outline.ts';
import { Value } from './value.tsx';

/** Chunks that are drawn one by one. */
const SHOWN = 100;
/** Characters of the joined text that are drawn. */
const SHOWN_CHARACTERS = 50_000;

/** A longer value is drawn on several lines. */
const LINE_CHARACTERS = 240;

interface ChunksProps {
  chunks: readonly StreamChunk[];
  file: string;
}

export function Chunks({ chunks, file }: ChunksProps) {
  if (chunks.length === 0) return <p class="muted">No chunks yet.</p>;
  const text = joinTexts(chunks);
  const hidden = chunks.length - SHOWN;
  return (
    <div class="value">
      {text !== undefined && <Block text={text} label="Text" look="text" />}
      {text === undefined && hidden > 0 && (
        <p class="muted">{hidden.toLocaleString()} earlier chunks are not shown.</p>
      )}
      {text === undefined && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard scrolls it.
        <section class="chunks" aria-label="Chunks" tabIndex={0}>
          <ol start={Math.max(hidden, 0) + 1}>
            {chunks.slice(-SHOWN).map((chunk) => (
              <li key={chunk.position}>
                <Chunk chunk={chunk} file={file} />
              </li>
            ))}
          </ol>
        </section>
      )}
      <p class="cut">
        <span class="muted">{chunks.length.toLocaleString()} chunks.</span>{' '}
        <Download
          label="Download the chunks"
          file={`${file}-chunks.json`}
          read={() => JSON.stringify(chunks.map(({ metrics, output }) => ({ output, metrics })))}
        />
      </p>
    </div>
  );
}

function Chunk({
  chunk: { metrics, output, position },
  file,
}: {
  chunk: StreamChunk;
  file: string;
}) {
  const line = writeLine(output);
  const shown = Object.entries(metrics);
  return (
    <>
      {line !== undefined ? (
        <code>{line}</code>
      ) : (
        <Value value={output} file={`${file}-${position}`} />
      )}
      {shown.length > 0 && (
        <small class="muted">{shown.map(([name, value]) => `${name} ${value}`).join(', ')}</small>
      )}
    </>
  );
}

/** The end of the text that the chunks make together; undefined if one is no text. */
function joinTexts(chunks: readonly StreamChunk[]): string | undefined {
  const parts: string[] = [];
  let length = 0;
  for (const { output } of chunks.toReversed()) {
    const text = readText(output);
    if (text === undefined) return undefined;
    parts.push(text);
    length += text.length;
    if (length > SHOWN_CHARACTERS) {
      parts.push('… ');
      break;
    }
  }
  // A chunk may be longer than all that is drawn.
  return parts.toReversed().join('').slice(-SHOWN_CHARACTERS);
}

function readText(output: unknown): string | undefined {
  if (typeof output === 'string') return outline(output).media.length > 0 ? undefined : output;
  return undefined;
}

/** A small value as one line; undefined for images, and for values that need more space. */
function writeLine(output: unknown): string | undefined {
  const { isCut, media, text } = outline(output);
  if (isCut || media.length > 0 || text.length > LINE_CHARACTERS) return undefined;
  return JSON.stringify(output);
}
