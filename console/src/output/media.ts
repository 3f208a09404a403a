// Finds images and sound in a job's output. Only formats that cannot run scripts: SVG and HTML stay text.

export interface Media {
  kind: 'image' | 'audio';
  /** A `data:` URL. */
  url: string;
  /** Where it is in the value: `images[0]`; empty if it is the value. */
  path: string;
}

/** `data:` URLs of these types are shown. */
const DATA_URL =
  /^data:(image|audio)\/(png|jpeg|webp|gif|avif|mpeg|mp3|wav|wave|x-wav|ogg|flac|aac|mp4|webm);base64,/;

/** Starts of base64 of files that are shown without a `data:` URL. */
const SIGNATURES: readonly { start: RegExp; kind: Media['kind']; type: string }[] = [
  { start: /^iVBORw0KGgo/, kind: 'image', type: 'image/png' },
  { start: /^\/9j\//, kind: 'image', type: 'image/jpeg' },
  { start: /^R0lGOD[dl]h/, kind: 'image', type: 'image/gif' },
  // RIFF files: WEBP and WAVE.
  { start: /^UklGR.{6}XRUJQ/, kind: 'image', type: 'image/webp' },
  { start: /^UklGR.{6}XQVZF/, kind: 'audio', type: 'audio/wav' },
  { start: /^UklGR.{6}V0VCU/, kind: 'image', type: 'image/webp' },
  { start: /^UklGR.{6}V0FWR/, kind: 'audio', type: 'audio/wav' },
  { start: /^AAAA(?:.{4})Z0eXBhdmlm/, kind: 'image', type: 'image/avif' },
  { start: /^SUQz/, kind: 'audio', type: 'audio/mpeg' },
  { start: /^T2dnUw/, kind: 'audio', type: 'audio/ogg' },
  { start: /^ZkxhQ/, kind: 'audio', type: 'audio/flac' },
];

const BASE64_START = /^[A-Za-z0-9+/]{24,}={0,2}/;

/** Undefined for any other text. */
export function readMedia(text: string, path: string): Media | undefined {
  const [, kind] = DATA_URL.exec(text.slice(0, 64)) ?? [];
  if (kind === 'image' || kind === 'audio') return { kind, url: text, path };
  const start = text.slice(0, 64);
  if (!BASE64_START.test(start)) return undefined;
  const found = SIGNATURES.find((signature) => signature.start.test(start));
  return found && { kind: found.kind, url: `data:${found.type};base64,${text}`, path };
}
