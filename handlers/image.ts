// Decodes, turns, resizes and converts one image with sharp.
//
//   { "image": "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7", "format": "png" }
//   { "url": "https://example.com/cat.png", "resize": { "width": 320 }, "format": "webp" }
//   { "image": "data:image/png;base64,iVBORw0…", "rotate": 90, "format": "jpeg", "quality": 70 }
//   →  { "image": "<base64>", "format": "webp", "width": 320, "height": 213, "bytes": 8124 }
//
// Reads JPEG, PNG, WebP, AVIF, GIF and TIFF, of an animation the first frame. The orientation that
// a camera noted is applied first; metadata is left out. URLs lead to public addresses only, unless
// MILLRACE_ALLOW_PRIVATE_URLS=1 is in the worker's environment.
import { type Context, defineHandler, type Job, NonRetryableError } from 'millrace';
import { anyAddress, publicOnly } from 'millrace/outgoing';
import { downloadBytes } from 'millrace/storage';
import sharp, { type Metadata, type Sharp } from 'sharp';
import { z } from 'zod';

const MB = 1_048_576;
const MAX_DOWNLOAD_BYTES = 20 * MB;
const DOWNLOAD_TIMEOUT_MS = 30_000;
const MAX_REDIRECTS = 5;
/** Decoded, four bytes a pixel, this is 400 MB. */
const MAX_INPUT_PIXELS = 100_000_000;
const MAX_OUTPUT_PIXELS = 50_000_000;
const MAX_SIDE = 16_383;
/** A job's output is at most 20 MB of JSON: base64 takes a third more, the rest of it 1 KB. */
const MAX_OUTPUT_BYTES = Math.floor(((20 * MB - 1_024) / 4) * 3);
const PROCESSING_SECONDS = 60;

const FORMATS = ['jpeg', 'png', 'webp', 'avif'] as const;
type Format = (typeof FORMATS)[number];

// Accepts only these of the formats that libvips reads; some others are programs rather than
// pictures (SVG, PDF).
sharp.block({ operation: ['VipsForeignLoad'] });
sharp.unblock({
  operation: [
    'VipsForeignLoadJpeg',
    'VipsForeignLoadPng',
    'VipsForeignLoadWebp',
    'VipsForeignLoadHeif',
    'VipsForeignLoadNsgif',
    'VipsForeignLoadTiff',
  ],
});

const side = z.int().min(1).max(MAX_SIDE);

const input = z
  .strictObject({
    /** Base64, bare or as a data URL. */
    image: z.string().transform(decodeImage).exactOptional(),
    /** http or https. */
    url: z.string().min(1).max(8_192).exactOptional(),
    /** Degrees clockwise. */
    rotate: z.literal([0, 90, 180, 270]).default(0),
    /** One side alone keeps the proportions. */
    resize: z
      .strictObject({
        width: side.exactOptional(),
        height: side.exactOptional(),
        /** With both sides: how the picture is made to fit. */
        fit: z.enum(['cover', 'contain', 'fill', 'inside', 'outside']).default('cover'),
      })

      .refine(({ width, height }) => (width ?? height) !== undefined, 'needs width, height or both')
      .exactOptional(),
    /** Default: that of the input if it is one of these, else png. */
    format: z.enum(FORMATS).exactOptional(),
    /** 1 to 100; not for png, which loses nothing. Default 80 (avif: 50). */
    quality: z.int().min(1).max(100).exactOptional(),
  })
  .refine(({ image, url }) => (image === undefined) !== (url === undefined), {
    error: 'needs either image or url',
  });

type ImageInput = z.infer<typeof input>;

export default defineHandler({ input, run: convertImage, config: { timeoutMs: 120_000 } });

async function convertImage({ input: request }: Job<ImageInput>, ctx: Context) {
  const source = await readSource(request, ctx.signal);
  const image = sharp(source, { limitInputPixels: MAX_INPUT_PIXELS });
  ctx.signal.throwIfAborted();
  const metadata = await decode(() => image.metadata(), ctx.signal);
  const format = chooseFormat(request, metadata);
  checkOutputSize(metadata, request);
  const { data, info } = await decode(() => render(image, request, format), ctx.signal);
  if (data.length > MAX_OUTPUT_BYTES) {
    throw new NonRetryableError(
      `the result is ${data.length} bytes, at most ${MAX_OUTPUT_BYTES} go: ask for fewer pixels or a lower quality`,
    );
  }
  return {
    image: data.toString('base64'),
    format,
    width: info.width,
    height: info.height,
    bytes: data.length,
  };
}

function decodeImage(text: string, context: z.RefinementCtx): Buffer {
  const base64 = text.replace(/^data:[^,]{0,200};base64,/i, '').replace(/\s+/g, '');
  if (!/^[A-Za-z0-9+/_-]+={0,2}$/.test(base64)) {
    context.addIssue('is neither base64 nor a data URL with base64 in it');
  }
  return Buffer.from(base64, 'base64');
}

async function readSource({ image, url }: ImageInput, signal: AbortSignal): Promise<Buffer> {
  if (url === undefined) return image ?? Buffer.alloc(0);
  const allowsPrivate = process.env['MILLRACE_ALLOW_PRIVATE_URLS'] === '1';
  return await downloadBytes(
    url,
    { signal },
    {
      name: 'input.url',
      maxBytes: MAX_DOWNLOAD_BYTES,
      timeoutMs: DOWNLOAD_TIMEOUT_MS,
      maxRedirects: MAX_REDIRECTS,
      rule: allowsPrivate ? anyAddress : publicOnly,
    },
  );
}

/**
 * An error of sharp about an image is permanent. sharp cannot be interrupted, so a cancelled job
 * does not wait for it.
 */
async function decode<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
  const stopped = Promise.withResolvers<never>();
  const stop = () => stopped.reject(signal.reason);
  signal.addEventListener('abort', stop, { once: true });
  try {
    return await Promise.race([work(), stopped.promise]);
  } catch (error) {
    signal.throwIfAborted();
    const message = error instanceof Error ? error.message : String(error);
    throw new NonRetryableError(`the image cannot be processed: ${message}`, { cause: error });
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

function chooseFormat({ format, quality }: ImageInput, metadata: Metadata): Format {
  const chosen = format ?? keepFormat(metadata);
  if (chosen !== 'png' || quality === undefined) return chosen;
  throw new NonRetryableError('input.quality: png has none; ask for jpeg, webp or avif');
}

function keepFormat({ format, compression }: Metadata): Format {
  if (format === 'heif') return compression === 'av1' ? 'avif' : 'png';
  return FORMATS.find((known) => known === format) ?? 'png';
}

interface Size {
  width: number;
  height: number;
}

function checkOutputSize(metadata: Metadata, request: ImageInput): void {
  const { width, height } = predictSize(metadata, request);
  if (width > MAX_SIDE || height > MAX_SIDE) {
    throw new NonRetryableError(
      `the result would be ${width} × ${height}, no side may exceed ${MAX_SIDE}: change input.resize`,
    );
  }
  if (width * height > MAX_OUTPUT_PIXELS) {
    throw new NonRetryableError(
      `the result would have ${width * height} pixels, at most ${MAX_OUTPUT_PIXELS} go: change input.resize`,
    );
  }
}

function predictSize({ autoOrient }: Metadata, { rotate, resize }: ImageInput): Size {
  const isTurned = rotate === 90 || rotate === 270;
  const from = isTurned ? { width: autoOrient.height, height: autoOrient.width } : autoOrient;
  if (resize === undefined) return from;
  const { width, height, fit } = resize;
  const scales = [];
  if (width !== undefined) scales.push(width / from.width);
  if (height !== undefined) scales.push(height / from.height);
  if (width !== undefined && height !== undefined && fit !== 'inside' && fit !== 'outside') {
    return { width, height };
  }
  const scale = fit === 'inside' ? Math.min(...scales) : Math.max(...scales);
  return { width: Math.round(from.width * scale), height: Math.round(from.height * scale) };
}

function render(image: Sharp, { rotate, resize, quality }: ImageInput, format: Format) {
  const turned = image.autoOrient().rotate(rotate).timeout({ seconds: PROCESSING_SECONDS });
  const sized = resize === undefined ? turned : turned.resize(resize);
  const options = quality === undefined ? {} : { quality };
  return sized.toFormat(format, options).toBuffer({ resolveWithObject: true });
}
