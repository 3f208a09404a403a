// Shows a value that a handler made: images and sound as such, texts as text, all else as JSON. It is data: markup in
// it is never read as markup.
import { useMemo } from 'preact/hooks';
import { Block } from '../parts/block.tsx';
import { Download } from './download.tsx';
import type { Media } from './media.ts';
import { BOUNDS, outline } from './outline.ts';

interface ValueProps {
  value: unknown;
  /** Name of the file that it can be saved as, without its extension. */
  file: string;
}

export function Value({ file, value }: ValueProps) {
  const { isCut, media, text } = useMemo(() => describe(value), [value]);
  return (
    <div class="value">
      {media.map((each) => (
        <Shown key={each.path} media={each} />
      ))}
      <Block text={text} label="Output" />
      {isCut && (
        <p class="cut">
          <span class="muted">Shortened.</span>{' '}
          {typeof value === 'string' ? (
            <Download
              label="Download the text"
              file={`${file}.txt`}
              type="text/plain"
              read={() => value}
            />
          ) : (
            <Download
              label="Download the JSON"
              file={`${file}.json`}
              read={() => JSON.stringify(value, null, 2)}
            />
          )}
        </p>
      )}
    </div>
  );
}

function describe(value: unknown) {
  if (typeof value !== 'string') return outline(value);
  const { media, ...rest } = outline(value);
  if (media.length > 0) return { media, ...rest };
  const isCut = value.length > BOUNDS.characters;
  return { text: isCut ? `${value.slice(0, BOUNDS.characters)}…` : value, isCut, media };
}

function Shown({ media: { kind, path, url } }: { media: Media }) {
  return (
    <figure>
      {kind === 'image' ? (
        <img src={url} alt={path || 'The value'} />
      ) : (
        // biome-ignore lint/a11y/useMediaCaption: a handler's sound has none.
        <audio controls src={url} aria-label={path || 'The value'} />
      )}
      {path && <figcaption class="muted">{path}</figcaption>}
    </figure>
  );
}
