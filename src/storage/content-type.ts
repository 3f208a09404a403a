// The media types of what handlers commonly create.
import { extname } from 'node:path';

const TYPES: ReadonlyMap<string, string> = new Map([
  ['.csv', 'text/csv'],
  ['.flac', 'audio/flac'],
  ['.gif', 'image/gif'],
  ['.glb', 'model/gltf-binary'],
  ['.jpeg', 'image/jpeg'],
  ['.jpg', 'image/jpeg'],
  ['.json', 'application/json'],
  ['.mp3', 'audio/mpeg'],
  ['.mp4', 'video/mp4'],
  ['.ogg', 'audio/ogg'],
  ['.pdf', 'application/pdf'],
  ['.png', 'image/png'],
  ['.txt', 'text/plain; charset=utf-8'],
  ['.wav', 'audio/wav'],
  ['.webm', 'video/webm'],
  ['.webp', 'image/webp'],
  ['.zip', 'application/zip'],
]);

export function findContentType(key: string): string {
  return TYPES.get(extname(key).toLowerCase()) ?? 'application/octet-stream';
}
