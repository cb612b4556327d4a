#pragma once

#include <cstdint>
#include <vector>

#include "millstream/source/arrays.h"

namespace millstream {

/// What `packed` would copy.
struct Packable {
  std::int64_t arrays = 0;
  std::int64_t bytes = 0;
};
Packable packable(const ArraysSource& source);

/// Copies all arrays with small rows to one block, in which the rows of a sample lie
/// side by side. Reading a sample then needs one or two cache lines and not one for
/// each array. Copies nothing if fewer than two arrays have small rows. Throws
/// `IoError` if the file of a mapped array was truncated.
ArraysSource packed(const ArraysSource& source);

/// The same rows in memory of their own, without gaps.
Array unpacked(const Array& array);

}  // namespace millstream
