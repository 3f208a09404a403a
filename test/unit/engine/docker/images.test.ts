import { describe, expect, it } from 'vitest';
import { readRegistry } from '../../../../src/engine/docker/images.ts';

describe('the registry of an image', () => {
  it.each([
    ['busybox', 'docker.io'],
    ['busybox:1', 'docker.io'],
    ['ada/thing', 'docker.io'],
    ['docker.io/ada/thing', 'docker.io'],
    ['index.docker.io/ada/thing', 'docker.io'],
    ['ghcr.io/ada/thing:1@sha256:00', 'ghcr.io'],
    ['localhost/thing', 'localhost'],
    ['host:5000/thing', 'host:5000'],
    ['evil.example/ghcr.io/thing', 'evil.example'],
  ])('of %s is %s', (image, registry) => {
    expect(readRegistry(image)).toBe(registry);
  });
});
