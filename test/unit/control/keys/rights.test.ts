import { describe, expect, it } from 'vitest';
import { allows, implies } from '../../../../src/control/keys/rights.ts';
import type { Scope } from '../../../../src/wire/routes/route.ts';

const may = (grants: string[], scope: Scope, endpoint?: string) =>
  allows({ scopes: new Set(grants) }, scope, endpoint);

describe('a scope', () => {
  it('holds for every endpoint', () => {
    expect(may(['jobs:read'], 'jobs:read', 'a')).toBe(true);
    expect(may(['jobs:read'], 'jobs:read')).toBe(true);
  });

  it('bound to an endpoint holds for that one only', () => {
    expect(may(['jobs:read:a'], 'jobs:read', 'a')).toBe(true);
    expect(may(['jobs:read:a'], 'jobs:read', 'b')).toBe(false);
    expect(may(['jobs:read:a'], 'jobs:read', 'ab')).toBe(false);
    expect(may(['jobs:read:a'], 'jobs:read')).toBe(false);
  });

  it('implies no other scope, neither reading nor working', () => {
    expect(may(['jobs:write'], 'jobs:read', 'a')).toBe(false);
    expect(may(['jobs:read'], 'jobs:write', 'a')).toBe(false);
    expect(may(['jobs:read', 'jobs:write'], 'worker', 'a')).toBe(false);
    expect(may(['worker'], 'jobs:read', 'a')).toBe(false);
  });

  it('implies all if it is admin; bound to an endpoint, all of that one', () => {
    expect(may(['admin'], 'worker', 'a')).toBe(true);
    expect(may(['admin'], 'keys:write')).toBe(true);
    expect(may(['admin:a'], 'jobs:write', 'a')).toBe(true);
    expect(may(['admin:a'], 'jobs:write', 'b')).toBe(false);
    expect(may(['admin:a'], 'keys:write')).toBe(false);
  });
});

describe('a granted scope', () => {
  const gives = (grants: string[], text: string) => implies({ scopes: new Set(grants) }, text);

  it.each([
    [['admin'], 'admin'],
    [['admin'], 'admin:a'],
    [['admin'], 'pods:write'],
    [['jobs:write'], 'jobs:write'],
    [['jobs:write'], 'jobs:write:a'],
    [['jobs:write:a'], 'jobs:write:a'],
    [['admin:a'], 'admin:a'],
    [['admin:a'], 'worker:a'],
  ])('%j covers %s', (grants, text) => {
    expect(gives(grants, text)).toBe(true);
  });

  it.each([
    [['jobs:write'], 'jobs:read'],
    [['jobs:write'], 'admin'],
    [['jobs:write:a'], 'jobs:write'],
    [['jobs:write:a'], 'jobs:write:b'],
    [['admin:a'], 'admin'],
    [['admin:a'], 'jobs:read'],
    [['admin:a'], 'jobs:read:b'],
    [['admin'], 'everything'],
    [['everything'], 'everything'],
    [['jobs:read', 'jobs:write', 'keys:write', 'worker'], 'pods:read'],
  ])('%j does not cover %s', (grants, text) => {
    expect(gives(grants, text)).toBe(false);
  });
});
