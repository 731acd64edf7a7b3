//! The Merkle tree of RFC 6962: hashes, roots, inclusion and consistency proofs.
//!
//! Nodes are named by level and index: the node `(level, index)` covers the `2^level` leaves from
//! `index << level` on. Only complete ones have a name; everything else is made of them. Whoever
//! proves gives a way to look complete nodes up, whoever verifies needs none.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::Digest as _;

/// A hash in the tree; written in base64.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    /// The hash that these 32 bytes are.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The hash of a leaf. The leading byte keeps leaves and nodes apart: without it, a pair of
    /// hashes could be passed off as an entry.
    #[must_use]
    pub fn leaf(data: &[u8]) -> Self {
        Self::leaf_end(Self::leaf_start().chain_update(data))
    }

    /// What every leaf's hash begins with.
    pub(crate) fn leaf_start() -> sha2::Sha256 {
        sha2::Sha256::new_with_prefix([0])
    }

    /// A leaf that was begun with [`leaf_start`](Self::leaf_start) and has all its bytes.
    pub(crate) fn leaf_end(hash: sha2::Sha256) -> Self {
        Self(hash.finalize().into())
    }

    /// The hash over two subtrees.
    #[must_use]
    pub fn node(left: &Self, right: &Self) -> Self {
        let mut bytes = [1; 65];
        let (_, pair) = bytes.split_at_mut(1);
        for (to, from) in pair.iter_mut().zip(left.0.iter().chain(&right.0)) {
            *to = *from;
        }
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// The root of the tree without leaves.
    #[must_use]
    pub fn empty() -> Self {
        Self(sha2::Sha256::digest([]).into())
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// A text that is not a hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a hash is 32 bytes in base64")]
pub struct NotAHash;

impl std::str::FromStr for Hash {
    type Err = NotAHash;
    fn from_str(text: &str) -> Result<Self, NotAHash> {
        let bytes = STANDARD.decode(text).map_err(|_| NotAHash)?;
        bytes.try_into().map(Self).map_err(|_| NotAHash)
    }
}

impl serde::Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Why a proof proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    /// There is no such leaf, or the older tree is the larger one.
    #[error("the proof is about a place that the tree does not have")]
    OutOfRange,
    /// Too many or too few hashes.
    #[error("the proof has not the length that it must have")]
    Length,
    /// The hashes lead elsewhere.
    #[error("the proof leads to another root")]
    Root,
}

/// The right edge of a growing tree: the complete subtrees it consists of, largest first. This is
/// all that is needed to append and to know the root, however long the journal is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    /// One for each bit that is set in `size`, from the highest.
    peaks: Vec<Hash>,
}

impl Frontier {
    /// The right edge of a tree of this size; `None` if that takes another number of peaks.
    #[must_use]
    pub fn new(size: u64, peaks: Vec<Hash>) -> Option<Self> {
        (peaks.len() == size.count_ones() as usize).then_some(Self { size, peaks })
    }

    /// Leaves so far.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The complete subtrees, largest first.
    #[must_use]
    pub fn peaks(&self) -> &[Hash] {
        &self.peaks
    }

    /// Adds a leaf, and tells every node that it completes, itself first.
    pub fn push(&mut self, leaf: Hash, mut completed: impl FnMut(u32, u64, &Hash)) {
        let (mut level, mut node) = (0, leaf);
        completed(level, self.size, &node);
        while (self.size >> level) & 1 == 1 {
            let Some(left) = self.peaks.pop() else { break };
            node = Hash::node(&left, &node);
            level += 1;
            completed(level, self.size >> level, &node);
        }
        self.peaks.push(node);
        self.size += 1;
    }

    /// The root over everything so far.
    #[must_use]
    pub fn root(&self) -> Hash {
        let joined = self.peaks.iter().rev().copied();
        joined
            .reduce(|right, left| Hash::node(&left, &right))
            .unwrap_or_else(Hash::empty)
    }
}

/// The root over these leaves.
#[must_use]
pub fn root_of(leaves: &[Hash]) -> Hash {
    let mut frontier = Frontier::default();
    for leaf in leaves {
        frontier.push(*leaf, |_, _, _| {});
    }
    frontier.root()
}

/// The hash over the leaves from `from` up to `to`, which is made of complete nodes: `from` is a
/// multiple of the largest power of two that is not larger than the range.
///
/// # Errors
/// A node could not be looked up.
pub fn subtree<E>(
    from: u64,
    to: u64,
    node: &mut impl FnMut(u32, u64) -> Result<Hash, E>,
) -> Result<Hash, E> {
    let count = to.saturating_sub(from);
    if count == 0 {
        return Ok(Hash::empty());
    }
    if count.is_power_of_two() {
        let level = count.trailing_zeros();
        return node(level, from >> level);
    }
    let middle = from + split(count);
    let left = subtree(from, middle, node)?;
    Ok(Hash::node(&left, &subtree(middle, to, node)?))
}

/// That leaf `index` is in the tree of the first `size` leaves: the hashes beside its path, from
/// the leaf up. `None` when there is no such leaf.
///
/// # Errors
/// A node could not be looked up.
pub fn inclusion<E>(
    index: u64,
    size: u64,
    mut node: impl FnMut(u32, u64) -> Result<Hash, E>,
) -> Result<Option<Vec<Hash>>, E> {
    if index >= size {
        return Ok(None);
    }
    let (mut from, mut to) = (0, size);
    let mut path = Vec::new();
    while to - from > 1 {
        let middle = from + split(to - from);
        if index < middle {
            path.push(subtree(middle, to, &mut node)?);
            to = middle;
        } else {
            path.push(subtree(from, middle, &mut node)?);
            from = middle;
        }
    }
    path.reverse();
    Ok(Some(path))
}

/// That the first `old` leaves of the tree of `size` are the tree of `old`. `None` when the older
/// one is larger. About the empty tree there is nothing to prove.
///
/// # Errors
/// A node could not be looked up.
pub fn consistency<E>(
    old: u64,
    size: u64,
    mut node: impl FnMut(u32, u64) -> Result<Hash, E>,
) -> Result<Option<Vec<Hash>>, E> {
    if old > size {
        return Ok(None);
    }
    if old == 0 || old == size {
        return Ok(Some(Vec::new()));
    }
    let (mut from, mut to) = (0, size);
    let mut path = Vec::new();
    while to != old {
        let middle = from + split(to - from);
        if old <= middle {
            path.push(subtree(middle, to, &mut node)?);
            to = middle;
        } else {
            path.push(subtree(from, middle, &mut node)?);
            from = middle;
        }
    }
    // Whoever verifies has the old root; when that is this very node, it need not be told again.
    if from > 0 {
        path.push(subtree(from, to, &mut node)?);
    }
    path.reverse();
    Ok(Some(path))
}

/// Whether this leaf is at `index` in the tree with this root.
///
/// # Errors
/// The proof does not show it.
pub fn verify_inclusion(
    leaf: &Hash,
    index: u64,
    size: u64,
    path: &[Hash],
    root: &Hash,
) -> Result<(), Unproven> {
    if index >= size {
        return Err(Unproven::OutOfRange);
    }
    let (mut place, mut last) = (index, size - 1);
    let mut hash = *leaf;
    for beside in path {
        if last == 0 {
            return Err(Unproven::Length);
        }
        if place & 1 == 1 || place == last {
            hash = Hash::node(beside, &hash);
            // A node without a sibling moves up unchanged.
            while place & 1 == 0 && place != 0 {
                (place, last) = (place >> 1, last >> 1);
            }
        } else {
            hash = Hash::node(&hash, beside);
        }
        (place, last) = (place >> 1, last >> 1);
    }
    if last != 0 {
        return Err(Unproven::Length);
    }
    (hash == *root).then_some(()).ok_or(Unproven::Root)
}

/// Whether the tree of `size` with `root` begins with the tree of `old` with `old_root`.
///
/// # Errors
/// The proof does not show it.
pub fn verify_consistency(
    old: u64,
    size: u64,
    path: &[Hash],
    old_root: &Hash,
    root: &Hash,
) -> Result<(), Unproven> {
    if old > size {
        return Err(Unproven::OutOfRange);
    }
    if old == 0 || old == size {
        let expected = if old == 0 { Hash::empty() } else { *root };
        if !path.is_empty() {
            return Err(Unproven::Length);
        }
        return (*old_root == expected).then_some(()).ok_or(Unproven::Root);
    }
    let (mut place, mut last) = (old - 1, size - 1);
    while place & 1 == 1 {
        (place, last) = (place >> 1, last >> 1);
    }
    let mut rest = path.iter();
    // A complete old tree is a node of the new one, and its root is known.
    let start = if old.is_power_of_two() {
        *old_root
    } else {
        *rest.next().ok_or(Unproven::Length)?
    };
    let (mut before, mut after) = (start, start);
    for beside in rest {
        if last == 0 {
            return Err(Unproven::Length);
        }
        if place & 1 == 1 || place == last {
            before = Hash::node(beside, &before);
            after = Hash::node(beside, &after);
            while place & 1 == 0 && place != 0 {
                (place, last) = (place >> 1, last >> 1);
            }
        } else {
            after = Hash::node(&after, beside);
        }
        (place, last) = (place >> 1, last >> 1);
    }
    if last != 0 {
        return Err(Unproven::Length);
    }
    (before == *old_root && after == *root)
        .then_some(())
        .ok_or(Unproven::Root)
}

/// The largest power of two below `count`, which is at least 2.
const fn split(count: u64) -> u64 {
    1 << (63 - (count - 1).leading_zeros())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::convert::Infallible;

    use super::*;

    /// Leaves and roots that the certificate transparency reference implementation publishes.
    const LEAVES: [&str; 8] = [
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    ];
    const ROOTS: [&str; 9] = [
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ];

    fn bytes(hex: &str) -> Vec<u8> {
        hex.as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    fn hash(hex: &str) -> Hash {
        Hash(bytes(hex).try_into().unwrap())
    }

    /// A tree with all its complete nodes.
    struct Whole {
        leaves: Vec<Hash>,
        nodes: HashMap<(u32, u64), Hash>,
    }

    impl Whole {
        fn new(leaves: Vec<Hash>) -> Self {
            let mut frontier = Frontier::default();
            let mut nodes = HashMap::new();
            for leaf in &leaves {
                frontier.push(*leaf, |level, index, node| {
                    nodes.insert((level, index), *node);
                });
            }
            Self { leaves, nodes }
        }

        fn published() -> Self {
            Self::new(LEAVES.iter().map(|hex| Hash::leaf(&bytes(hex))).collect())
        }

        fn numbers(count: u64) -> Self {
            Self::new(
                (0..count)
                    .map(|number| Hash::leaf(&number.to_be_bytes()))
                    .collect(),
            )
        }

        fn node(&self) -> impl FnMut(u32, u64) -> Result<Hash, Infallible> {
            |level, index| Ok(self.nodes[&(level, index)])
        }

        fn root(&self, size: u64) -> Hash {
            subtree(0, size, &mut self.node()).unwrap()
        }

        fn inclusion(&self, index: u64, size: u64) -> Vec<Hash> {
            inclusion(index, size, self.node()).unwrap().unwrap()
        }

        fn consistency(&self, old: u64, size: u64) -> Vec<Hash> {
            consistency(old, size, self.node()).unwrap().unwrap()
        }
    }

    #[test]
    fn the_published_rfc_6962_vectors() {
        let tree = Whole::published();
        for (size, root) in ROOTS.iter().enumerate() {
            assert_eq!(root_of(&tree.leaves[..size]), hash(root));
            assert_eq!(tree.root(size as u64), hash(root));
        }
        let [a, b, c, d, e, f, g] = [
            "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
            "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
            "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        ]
        .map(hash);
        assert_eq!(tree.inclusion(0, 1), []);
        assert_eq!(tree.inclusion(0, 8), [a, b, c]);
        assert_eq!(tree.inclusion(5, 8), [d, e, f]);
        assert_eq!(tree.inclusion(2, 3), [hash(ROOTS[2])]);
        assert_eq!(tree.inclusion(1, 5), [hash(ROOTS[1]), b, d]);
        assert_eq!(tree.consistency(1, 1), []);
        assert_eq!(tree.consistency(1, 8), [a, b, c]);
        assert_eq!(tree.consistency(6, 8), [g, e, f]);
        assert_eq!(tree.consistency(2, 5), [b, d]);
    }

    #[test]
    fn every_proof_up_to_300_leaves_holds_and_for_nothing_else() {
        let tree = Whole::numbers(300);
        let roots: Vec<Hash> = (0..=300).map(|size| tree.root(size)).collect();
        let root = |size: u64| roots[usize::try_from(size).unwrap()];
        let leaf = |index: u64| tree.leaves[usize::try_from(index).unwrap()];
        for size in 1..=300 {
            assert_eq!(
                root_of(&tree.leaves[..usize::try_from(size).unwrap()]),
                root(size)
            );
            for index in 0..size {
                let path = tree.inclusion(index, size);
                let verify = |leaf: &Hash, index, root: &Hash| {
                    verify_inclusion(leaf, index, size, &path, root)
                };
                verify(&leaf(index), index, &root(size)).unwrap();
                verify(&leaf((index + 1) % 300), index, &root(size)).unwrap_err();
                verify(&leaf(index), index, &root(size - 1)).unwrap_err();
                if size > 1 {
                    verify(&leaf(index), (index + 1) % size, &root(size)).unwrap_err();
                }
            }
            for old in 0..=size {
                let path = tree.consistency(old, size);
                let verify = |old, before: &Hash, after: &Hash| {
                    verify_consistency(old, size, &path, before, after)
                };
                verify(old, &root(old), &root(size)).unwrap();
                verify(old, &Hash::leaf(b"x"), &root(size)).unwrap_err();
                if old > 0 {
                    verify(old, &root(old), &root(size - 1)).unwrap_err();
                }
                if old > 1 {
                    verify(old - 1, &root(old - 1), &root(size)).unwrap_err();
                }
            }
        }
    }

    #[test]
    fn a_changed_hash_or_another_length_proves_nothing() {
        let tree = Whole::numbers(100);
        let (root, half) = (tree.root(100), tree.root(50));
        let inclusion = tree.inclusion(33, 100);
        let consistency = tree.consistency(50, 100);
        let holds = |path: &[Hash]| {
            verify_inclusion(&tree.leaves[33], 33, 100, path, &root).is_ok()
                || verify_consistency(50, 100, path, &half, &root).is_ok()
        };
        for path in [inclusion, consistency] {
            assert!(holds(&path));
            for place in 0..path.len() {
                let mut changed = path.clone();
                changed[place].0[place] ^= 1;
                assert!(!holds(&changed));
                changed = path.clone();
                changed.remove(place);
                assert!(!holds(&changed));
                changed = path.clone();
                changed.insert(place, root);
                assert!(!holds(&changed));
            }
            assert!(!holds(&[path.as_slice(), &[root]].concat()));
        }
    }

    #[test]
    fn there_is_no_proof_about_what_is_not_there() {
        let tree = Whole::numbers(8);
        assert_eq!(inclusion(8, 8, tree.node()).unwrap(), None);
        assert_eq!(inclusion(0, 0, tree.node()).unwrap(), None);
        assert_eq!(consistency(9, 8, tree.node()).unwrap(), None);
        let root = tree.root(8);
        let outside = Err(Unproven::OutOfRange);
        assert_eq!(verify_inclusion(&tree.leaves[0], 8, 8, &[], &root), outside);
        assert_eq!(verify_consistency(9, 8, &[], &root, &root), outside);
        let most = u64::MAX;
        verify_inclusion(&root, most - 1, most, &[root; 64], &root).unwrap_err();
        verify_consistency(most - 1, most, &[root; 64], &root, &root).unwrap_err();
    }

    #[test]
    fn a_frontier_has_one_peak_for_each_bit() {
        let tree = Whole::numbers(300);
        let mut frontier = Frontier::default();
        for leaf in &tree.leaves {
            frontier.push(*leaf, |_, _, _| {});
            let again = Frontier::new(frontier.size(), frontier.peaks().to_vec());
            assert_eq!(again.as_ref(), Some(&frontier));
            assert_eq!(frontier.root(), tree.root(frontier.size()));
        }
        assert_eq!(Frontier::new(3, frontier.peaks().to_vec()), None);
    }
}
