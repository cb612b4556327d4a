#include "millstream/loader/batch.h"

#include <utility>

#include "millstream/parallel/process.h"

namespace millstream {
namespace {

std::int64_t aligned(std::int64_t offset) {
  const auto alignment = static_cast<std::int64_t>(kAlignment);
  return (offset + alignment - 1) / alignment * alignment;
}

}  // namespace

Layout::Layout(Schema schema, std::int64_t rows)
    : Layout(std::move(schema), std::vector<RowRange>{{0, rows}}) {}

Layout::Layout(Schema schema, std::vector<RowRange> shards)
    : schema_(std::move(schema)), shards_(std::move(shards)) {
  for (const RowRange& shard : shards_) {
    rows_ += shard.count;
    for (const Field& field : schema_) {
      offsets_.push_back(bytes_);
      bytes_ = aligned(bytes_ + byte_size(field) * shard.count);
    }
    offsets_.push_back(bytes_);
    bytes_ = aligned(bytes_ + shard.count);
  }
}

Batch::Batch(const Layout& layout, std::shared_ptr<const Block> block)
    : block_(std::move(block)), fields_(layout.schema().size()) {
  const Schema& schema = layout.schema();
  for (std::size_t shard = 0; shard < layout.shards().size(); ++shard) {
    for (std::size_t i = 0; i < fields_; ++i) {
      columns_.push_back({schema[i].dtype, schema[i].shape,
                          block_->data() + layout.offset(i, shard),
                          byte_size(schema[i]), nullptr});
    }
    masks_.push_back(
        reinterpret_cast<bool*>(block_->data() + layout.mask_offset(shard)));
  }
}

Slots::Slots(Layout layout, std::size_t kept, WorkerPool* worker_pool)
    : layout_(std::move(layout)),
      kept_(kept),
      worker_pool_(worker_pool),
      generation_(fork_generation()) {
  free_.reserve(kept);  // because give_back must not allocate
}

std::shared_ptr<Batch> Slots::take() {
  Block block;
  if (generation_ == fork_generation()) {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      block = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (block.data() == nullptr) {
    const std::int64_t bytes = layout_.bytes();
    block = worker_pool_ != nullptr
                ? worker_pool_->block(bytes)
                : Block(bytes, text("a batch of ", layout_.rows(), " rows"));
  }
  auto taken = std::make_unique<Block>(std::move(block));
  if (generation_ == fork_generation()) {
    const std::lock_guard lock(mutex_);
    ++live_;
  }
  std::shared_ptr<const Block> lent(taken.release(),
                                    [slots = shared_from_this()](Block* done) {
                                      slots->give_back(std::move(*done));
                                      delete done;
                                    });
  return std::make_shared<Batch>(layout_, std::move(lent));
}

std::int64_t Slots::live() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

void Slots::give_back(Block block) noexcept {
  if (generation_ != fork_generation()) return;
  const std::lock_guard lock(mutex_);
  --live_;
  if (free_.size() < kept_) free_.push_back(std::move(block));
}

}  // namespace millstream
