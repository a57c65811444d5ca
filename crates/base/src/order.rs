//! Types with an order that their fields do not have.

/// Implements `Ord`, `PartialOrd`, `Eq` and `PartialEq` of a type by one comparison. Generic parameters precede the
/// type in brackets: `ordered_by!([T: Ord] Entry<T>, |one, other| one.key.cmp(&other.key))`.
#[macro_export]
macro_rules! ordered_by {
    ([$($generics:tt)*] $type:ty, |$one:ident, $other:ident| $order:expr) => {
        impl<$($generics)*> Ord for $type {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                let ($one, $other) = (self, other);
                $order
            }
        }

        impl<$($generics)*> PartialOrd for $type {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl<$($generics)*> PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                self.cmp(other).is_eq()
            }
        }

        impl<$($generics)*> Eq for $type {}
    };
    ($type:ty, |$one:ident, $other:ident| $order:expr) => {
        $crate::ordered_by!([] $type, |$one, $other| $order);
    };
}
