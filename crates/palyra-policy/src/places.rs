//! Programs, paths and hosts as entities: each with everything it is in, made for one question.
//!
//! Policy never compares pieces of text. "Below this folder" and "under this domain" are questions
//! about ancestors, and ancestors are whole components: `/srv-evil` is not in `/srv`, and
//! `evil-example.com` is not in `example.com`. What is not in its normal form has no ancestors to
//! speak of, and is refused.

use std::collections::HashSet;
use std::path::{Component, Path};

use cedar_policy::{Entity, EntityUid};
use palyra_core::{Denial, EgressHost, ProgramFacts, SecretRef, VaultScope};

use crate::error::unavailable;
use crate::vocabulary::Vocabulary;

/// How many folders a path may be deep.
const MOST_LEVELS: usize = 256;

/// A program: in its own path and every folder above it, in those of the file that it really is,
/// and in its groups.
pub(crate) fn program(words: &Vocabulary, facts: &ProgramFacts) -> Result<Entity, Denial> {
    let text = normal(&facts.program)?;
    let mut above: Vec<EntityUid> = Vec::new();
    for place in std::iter::once(&facts.program).chain(&facts.real) {
        normal(place)?;
        above.extend(levels(place).map(|folder| words.path(folder)));
    }
    let groups = facts.groups.iter();
    above.extend(groups.map(|group| words.program_group(group.as_str())));
    Ok(entity(words.program(text), above))
}

/// A path: in every folder above it.
pub(crate) fn path(words: &Vocabulary, path: &Path) -> Result<Entity, Denial> {
    let text = normal(path)?;
    let folders = levels(path).skip(1).map(|folder| words.path(folder));
    Ok(entity(words.path(text), folders))
}

/// A host: in the domain of its own name and in every domain above it. An address is in none.
pub(crate) fn host(words: &Vocabulary, host: &EgressHost) -> Entity {
    let domains = host.domains().map(|domain| words.domain(domain));
    entity(words.host(host.as_str()), domains)
}

/// A secret: in whom or what it is for, and in its scope as the vault spells it.
pub(crate) fn secret(words: &Vocabulary, secret: &SecretRef) -> Entity {
    let scope = &secret.scope;
    let whose = match scope {
        VaultScope::Global | VaultScope::Session(_) => None,
        VaultScope::Principal(name) => Some(words.user(name)),
        VaultScope::Agent(name) => Some(words.agent(name)),
        VaultScope::Channel(name) => Some(words.channel_named(name.as_str())),
        VaultScope::Skill(name) => Some(words.skill(name.as_str())),
        VaultScope::Tool(name) => Some(words.tool(name)),
    };
    let spelled = [
        words.vault_scope(scope.kind()),
        words.vault_scope(&scope.to_string()),
    ];
    entity(
        words.secret(&secret.to_string()),
        spelled.into_iter().chain(whose),
    )
}

/// The path as text, when it is absolute, in its normal form, and not too deep.
fn normal(path: &Path) -> Result<&str, Denial> {
    let refused = |why: &str| {
        unavailable(
            format_args!("the path `{}` {why}", path.display()),
            "use its real absolute path, then repeat the call",
        )
    };
    let text = path.to_str().ok_or_else(|| refused("is not UTF-8"))?;
    let mut parts = path.components();
    let rooted = parts.next() == Some(Component::RootDir);
    if !rooted || !parts.all(|part| matches!(part, Component::Normal(_))) {
        return Err(refused("is not absolute and normal"));
    }
    // `components` drops `.`, doubled and trailing slashes: nothing may have been dropped.
    let kept: usize = path
        .components()
        .skip(1)
        .map(|part| part.as_os_str().len() + 1)
        .sum();
    if kept.max(1) != text.len() {
        return Err(refused("is not absolute and normal"));
    }
    if path.components().count() > MOST_LEVELS {
        return Err(refused("is too deep"));
    }
    Ok(text)
}

/// The path itself and every folder above it.
fn levels(path: &Path) -> impl Iterator<Item = &str> {
    path.ancestors().filter_map(Path::to_str)
}

/// No attributes, and all ancestors as parents: there is nothing left to follow.
fn entity(uid: EntityUid, ancestors: impl IntoIterator<Item = EntityUid>) -> Entity {
    Entity::new_no_attrs(uid, ancestors.into_iter().collect::<HashSet<_>>())
}

#[cfg(test)]
mod tests {
    use palyra_core::ProgramGroup;

    use super::*;

    fn plain(program: &str) -> ProgramFacts {
        ProgramFacts {
            program: program.into(),
            real: None,
            groups: Vec::new(),
        }
    }

    fn words() -> Vocabulary {
        Vocabulary::new().unwrap()
    }

    fn within(entity: Entity) -> Vec<String> {
        let (_, _, parents) = entity.into_inner();
        let mut parents: Vec<String> = parents.iter().map(ToString::to_string).collect();
        parents.sort();
        parents
    }

    #[test]
    fn a_path_is_in_every_folder_above_it_and_no_other() {
        let of = |text: &str| path(&words(), Path::new(text)).map(within);
        assert_eq!(
            of("/srv/app/x").unwrap(),
            [
                "Palyra::Path::\"/\"",
                "Palyra::Path::\"/srv\"",
                "Palyra::Path::\"/srv/app\""
            ]
        );
        assert_eq!(of("/srv-evil").unwrap(), ["Palyra::Path::\"/\""]);
        assert_eq!(of("/").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_is_not_normal_is_refused() {
        for text in [
            "",
            "srv",
            "./srv",
            "/srv/",
            "//srv",
            "/srv//x",
            "/srv/../etc",
            "/srv/.",
        ] {
            assert!(path(&words(), Path::new(text)).is_err(), "{text}");
            assert!(program(&words(), &plain(text)).is_err(), "{text}");
        }
        let deep = "/x".repeat(MOST_LEVELS + 1);
        assert!(path(&words(), Path::new(&deep)).is_err());
    }

    #[test]
    fn a_program_is_in_its_groups_and_folders() {
        let git = ProgramFacts {
            program: "/usr/bin/git".into(),
            real: None,
            groups: vec![ProgramGroup::Vcs, ProgramGroup::Network],
        };
        assert_eq!(
            within(program(&words(), &git).unwrap()),
            [
                "Palyra::Path::\"/\"",
                "Palyra::Path::\"/usr\"",
                "Palyra::Path::\"/usr/bin\"",
                "Palyra::Path::\"/usr/bin/git\"",
                "Palyra::ProgramGroup::\"network\"",
                "Palyra::ProgramGroup::\"vcs\""
            ]
        );
    }

    /// A rule about a program cannot be got around with a link to it.
    #[test]
    fn a_link_is_in_both_its_places() {
        let link = |real: &str| ProgramFacts {
            program: "/srv/ls".into(),
            real: Some(real.into()),
            groups: Vec::new(),
        };
        assert_eq!(
            within(program(&words(), &link("/usr/bash")).unwrap()),
            [
                "Palyra::Path::\"/\"",
                "Palyra::Path::\"/srv\"",
                "Palyra::Path::\"/srv/ls\"",
                "Palyra::Path::\"/usr\"",
                "Palyra::Path::\"/usr/bash\""
            ]
        );
        assert!(program(&words(), &link("/usr/../bash")).is_err());
    }

    #[test]
    fn a_host_is_in_every_domain_above_it_and_no_other() {
        let of = |text: &str| within(host(&words(), &text.parse().unwrap()));
        assert_eq!(
            of("api.example.com"),
            [
                "Palyra::Domain::\"api.example.com\"",
                "Palyra::Domain::\"com\"",
                "Palyra::Domain::\"example.com\""
            ]
        );
        assert_eq!(of("127.0.0.1"), Vec::<String>::new());
        assert_eq!(of("::1"), Vec::<String>::new());
    }
}
