// Which groups stay known if there are too many.
import { expect, it } from 'vitest';
import { GroupTurns, KnownGroups } from '../../../../src/store/live/group-turns.ts';

const GROUP = { last: 1, isStale: false, version: 0 };

function open(groups: KnownGroups, count: number): GroupTurns {
  const owner = new GroupTurns(groups);
  owner.hasAllGroups = true;
  for (let i = 0; i < count; i++) groups.put(owner, `g${i}`, GROUP);
  return owner;
}

function countKnown(groups: KnownGroups, owner: GroupTurns): number {
  const names = Array.from({ length: 100 }, (_, i) => `g${i}`);
  return names.filter((name) => groups.find(owner, name)).length;
}

it('an endpoint with many groups takes none of the others', () => {
  const groups = new KnownGroups(20);
  const few = open(groups, 5);
  const many = open(groups, 100);
  const some = open(groups, 12);
  groups.trim();
  expect([few, some, many].map((owner) => countKnown(groups, owner))).toEqual([5, 7, 8]);
  expect([few, some, many].map((owner) => owner.hasAllGroups)).toEqual([true, false, false]);
  // The newest ones.
  expect([groups.find(many, 'g91'), groups.find(many, 'g92')]).toEqual([undefined, GROUP]);
});

it('an endpoint that was removed gives its share back', () => {
  const groups = new KnownGroups(20);
  open(groups, 30).forget();
  const other = open(groups, 20);
  groups.trim();
  expect(countKnown(groups, other)).toBe(20);
});
