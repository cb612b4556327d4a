#pragma once

#include "millstream/source/combine.h"

namespace millstream {

/// A field of a recast source. `from` is the source's field that it uses.
struct RecastField {
  Field field;
  int from = 0;
  bool transposed = false;  // transpose each value, as for EMNIST's images
};

/// The samples of a source with their fields reordered, renamed, converted to other
/// dtypes, reshaped or transposed. Only converted and transposed values are copied.
class Recast final : public Wrapping {
 public:
  /// `fields` must use each field of the source exactly once. Throws `ArgumentError` if
  /// the numbers of elements differ, if two names are equal, or if a transposed field
  /// is not a matrix.
  Recast(SharedSource source, std::vector<RecastField> fields);

  const Schema& schema() const noexcept override { return schema_; }
  Traits traits() const noexcept override { return traits_; }
  void read(const Request& request, Rows& rows) const override;

  /// The arguments of the constructor.
  std::vector<RecastField> fields() const;

 private:
  Schema schema_;
  std::vector<std::size_t> from_;
  std::vector<bool> transposed_;
  Traits traits_;
};

}  // namespace millstream
