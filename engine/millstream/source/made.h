#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "millstream/core/maker.h"
#include "millstream/source/source.h"

namespace millstream {

/// Samples that a function makes from their indices.
class MadeSource : public Source {
 public:
  MadeSource(std::int64_t size, Schema schema, std::shared_ptr<Maker> maker);

  std::int64_t size() const noexcept override { return size_; }
  const Schema& schema() const noexcept override { return schema_; }
  Maker* maker() const noexcept override { return maker_.get(); }
  bool queues() const noexcept override { return true; }
  void read_for(const Making& making, std::int64_t first,
                std::span<const std::int64_t> indices, std::span<Column> columns,
                Memory& memory) const override;

 private:
  std::int64_t size_;
  Schema schema_;
  std::shared_ptr<Maker> maker_;
};

}  // namespace millstream
