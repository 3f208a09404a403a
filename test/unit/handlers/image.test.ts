import { NonRetryableError } from 'millrace';
import sharp from 'sharp';
import { afterEach, describe, expect, it, vi } from 'vitest';
import image from '../../../handlers/image.ts';
import { makeContext, startServer } from '../../support/handler-context.ts';

/** 40 × 20, left half red, right half blue. */
async function drawPicture(): Promise<Buffer> {
  const half = { width: 20, height: 20, channels: 3 as const };
  const blue = await sharp({ create: { ...half, background: '#00f' } })
    .png()
    .toBuffer();
  return await sharp({ create: { ...half, width: 40, background: '#f00' } })
    .composite([{ input: blue, left: 20, top: 0 }])
    .png()
    .toBuffer();
}

interface Converted {
  image: string;
  format: string;
  width: number;
  height: number;
  bytes: number;
}

async function convert(raw: unknown): Promise<Converted> {
  const input = image.input?.parse(raw);
  if (input === undefined) throw new Error('no schema');
  return (await image.run({ id: 'j', input }, makeContext().ctx)) as Converted;
}

async function convertPicture(options: object): Promise<Converted> {
  return await convert({ image: (await drawPicture()).toString('base64'), ...options });
}

/** Colour of one pixel. */
async function readPixel(picture: string, left: number, top: number): Promise<string> {
  const area = { left, top, width: 1, height: 1 };
  const pixel = await sharp(Buffer.from(picture, 'base64')).extract(area).raw().toBuffer();
  return pixel.subarray(0, 3).toString('hex');
}

afterEach(() => vi.unstubAllEnvs());

describe('image', () => {
  it.each(['jpeg', 'png', 'webp', 'avif'])('converts to %s', async (format) => {
    const result = await convertPicture({ format });
    const bytes = Buffer.from(result.image, 'base64');
    const found = await sharp(bytes).metadata();

    expect(result).toMatchObject({ format, width: 40, height: 20, bytes: bytes.length });
    expect(found.format).toBe(format === 'avif' ? 'heif' : format);
  });

  it('keeps the format of the input unless asked otherwise', async () => {
    const jpeg = await sharp(await drawPicture())
      .jpeg()
      .toBuffer();

    expect((await convert({ image: jpeg.toString('base64') })).format).toBe('jpeg');
  });

  it('returns png for an input format that it cannot write', async () => {
    const gif = await sharp(await drawPicture())
      .gif()
      .toBuffer();

    expect((await convert({ image: gif.toString('base64') })).format).toBe('png');
  });

  it('accepts a data URL with line breaks', async () => {
    const base64 = (await drawPicture()).toString('base64').replace(/.{60}/g, '$&\n');

    expect((await convert({ image: `data:image/png;base64,${base64}` })).width).toBe(40);
  });

  it.each([
    [{ width: 10 }, 10, 5],
    [{ height: 10 }, 20, 10],
    [{ width: 10, height: 10 }, 10, 10],
    [{ width: 10, height: 10, fit: 'inside' }, 10, 5],
    [{ width: 10, height: 10, fit: 'outside' }, 20, 10],
  ])('resizes by %j to %i × %i', async (resize, width, height) => {
    expect(await convertPicture({ resize })).toMatchObject({ width, height });
  });

  it('rotates clockwise before it resizes', async () => {
    const result = await convertPicture({ rotate: 90, resize: { width: 10 } });

    expect(result).toMatchObject({ width: 10, height: 20 });
    expect(await readPixel(result.image, 5, 2)).toBe('ff0000');
    expect(await readPixel(result.image, 5, 17)).toBe('0000ff');
  });

  it('applies the EXIF orientation', async () => {
    const sideways = await sharp(await drawPicture())
      .withMetadata({ orientation: 6 })
      .toBuffer();

    const result = await convert({ image: sideways.toString('base64'), rotate: 90 });

    expect(result).toMatchObject({ width: 40, height: 20 });
    expect(await readPixel(result.image, 35, 10)).toBe('ff0000');
  });

  it('writes a smaller file at a lower quality', async () => {
    const low = await convertPicture({ format: 'jpeg', quality: 5 });
    const high = await convertPicture({ format: 'jpeg', quality: 100 });

    expect(low.bytes).toBeLessThan(high.bytes);
  });

  it('refuses a quality for png', async () => {
    await expect(convertPicture({ quality: 5 })).rejects.toThrow('input.quality: ');
  });

  it.each([
    ['text', Buffer.from('hello').toString('base64')],
    [
      'an SVG',
      Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>').toString(
        'base64',
      ),
    ],
  ])('refuses %s without a retry', async (_, picture) => {
    await expect(convert({ image: picture })).rejects.toThrow(NonRetryableError);
  });

  it('refuses a truncated picture', async () => {
    const noise = { type: 'gaussian' as const, mean: 128, sigma: 50 };
    const create = { width: 100, height: 100, channels: 3 as const, noise, background: '#000' };
    const picture = await sharp({ create }).png().toBuffer();
    const half = picture.subarray(0, picture.length / 2).toString('base64');

    await expect(convert({ image: half })).rejects.toThrow(NonRetryableError);
  });

  it('refuses an input of more pixels than it decodes', async () => {
    const create = { width: 10_001, height: 10_000, channels: 3 as const, background: '#000' };
    const huge = await sharp({ create, limitInputPixels: false })
      .png({ compressionLevel: 1 })
      .toBuffer();

    await expect(convert({ image: huge.toString('base64') })).rejects.toThrow('pixel limit');
  });

  it.each([
    [{ width: 10_001 }, '50000000'],
    [{ width: 10_000, height: 10_000 }, '50000000'],
    [{ height: 16_000 }, '16383'],
  ])('refuses to resize by %j', async (resize, message) => {
    await expect(convertPicture({ resize })).rejects.toThrow(message);
  });

  it('refuses a result that is too large for a job', async () => {
    const noise = { type: 'gaussian' as const, mean: 128, sigma: 60 };
    const create = { width: 2_600, height: 2_600, channels: 3 as const, noise, background: '#000' };
    const picture = await sharp({ create }).jpeg({ quality: 60 }).toBuffer();

    await expect(convert({ image: picture.toString('base64'), format: 'png' })).rejects.toThrow(
      /\d+ bytes.*\b15727872\b/,
    );
  });

  it('does not wait for the picture when the job is cancelled', async () => {
    const { ctx, controller } = makeContext();
    const noise = { type: 'gaussian' as const, mean: 128, sigma: 60 };
    const create = { width: 1_500, height: 1_500, channels: 3 as const, noise, background: '#000' };
    const picture = await sharp({ create }).jpeg().toBuffer();
    const input = image.input?.parse({ image: picture.toString('base64'), format: 'avif' });
    if (input === undefined) throw new Error('no schema');
    const result = image.run({ id: 'j', input }, ctx);
    await expect.poll(() => sharp.counters().process, { interval: 1 }).toBeGreaterThan(0);
    controller.abort(new Error('cancelled by the test'));

    await expect(result).rejects.toThrow('cancelled by the test');
  });

  it('fetches a picture from a URL where the environment allows private addresses', async () => {
    vi.stubEnv('MILLRACE_ALLOW_PRIVATE_URLS', '1');
    const picture = await drawPicture();
    await using server = await startServer((_, response) => response.end(picture));

    expect(await convert({ url: server.url })).toMatchObject({ width: 40, height: 20 });
  });

  it('refuses a private address otherwise', async () => {
    await using server = await startServer((_, response) => response.end());

    await expect(convert({ url: server.url })).rejects.toThrow(/127\.0\.0\.1.*loopback/);
  });

  it.each([
    [{}, ''],
    [{ image: 'AAAA', url: 'http://example.com' }, ''],
    [{ image: 'not base64!' }, 'image'],
    [{ image: '' }, 'image'],
    [{ image: 'AAAA', resize: {} }, 'resize'],
    [{ image: 'AAAA', resize: { width: 0 } }, 'resize.width'],
    [{ image: 'AAAA', resize: { width: 1, fit: 'squash' } }, 'resize.fit'],
    [{ image: 'AAAA', rotate: 45 }, 'rotate'],
    [{ image: 'AAAA', format: 'bmp' }, 'format'],
    [{ image: 'AAAA', quality: 0 }, 'quality'],
    [{ image: 'AAAA', operation: 'x' }, ''],
  ])('refuses %j', (raw, path) => {
    const issues = image.input?.safeParse(raw).error?.issues;

    expect(issues?.map((issue) => issue.path.join('.'))).toEqual([path]);
  });
});
