// Files as base64, for inputs.
import { sayBytes } from '../../parts/bytes.ts';

/** base64 of a larger file does not fit into a request of 10 MB. */
const MAX_FILE_BYTES = 7_500_000;
const SLICE = 32_768;

export async function encodeFile(file: File): Promise<{ base64: string } | { problem: string }> {
  if (file.size > MAX_FILE_BYTES) {
    return {
      problem: `${file.name} has ${sayBytes(file.size)}; as base64 at most ${sayBytes(MAX_FILE_BYTES)} fit into a job. Pass a URL instead.`,
    };
  }
  return { base64: encodeBase64(new Uint8Array(await file.arrayBuffer())) };
}

function encodeBase64(bytes: Uint8Array): string {
  let text = '';
  for (let start = 0; start < bytes.length; start += SLICE) {
    text += String.fromCharCode(...bytes.subarray(start, start + SLICE));
  }
  return btoa(text);
}
