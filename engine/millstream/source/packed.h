#pragma once

#include <filesystem>

#include "millstream/source/columns.h"

namespace millstream {

/// Samples of one fixed size, back to back in a single file.
class PackedSource final : public ColumnsSource {
 public:
  /// A file that describes itself, as `write_packed` writes it. Throws `DataError` for
  /// a damaged one.
  explicit PackedSource(const std::filesystem::path& path);

  /// A file of nothing but records of `schema`, from `offset` on. Throws `DataError`
  /// unless they fill it.
  PackedSource(const std::filesystem::path& path, const Schema& schema,
               std::int64_t offset = 0);
};

}  // namespace millstream
