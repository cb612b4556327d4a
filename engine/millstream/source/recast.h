#pragma once

#include "millstream/source/combine.h"

namespace millstream {

/// A field of a recast source, and which of the source's it is made of.
struct RecastField {
  Field field;
  int from = 0;
  bool transposed = false;  // stored by columns, as EMNIST stores its images
};

/// The samples of a source with their fields in another order, with other names, dtypes
/// and shapes of as many elements; matrices may be transposed. Nothing is copied but
/// what is converted or transposed.
class Recast final : public Wrapping {
 public:
  /// Each of the source's fields once. Throws `ArgumentError` where elements do not
  /// match, two names are equal, or what is transposed is no matrix.
  Recast(SharedSource source, std::vector<RecastField> fields);

  const Schema& schema() const noexcept override { return schema_; }
  Traits traits() const noexcept override { return traits_; }
  void read(const Request& request, Rows& rows) const override;

 private:
  Schema schema_;
  std::vector<std::size_t> from_;
  std::vector<bool> transposed_;
  Traits traits_;
};

}  // namespace millstream
