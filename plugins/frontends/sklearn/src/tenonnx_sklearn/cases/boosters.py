"""Settings of boosters as data, like those of scikit-learn."""

BOOSTERS = {
    "binary three": """
LGBMClassifier(n_estimators=10, verbose=-1)
LGBMClassifier(n_estimators=10, boosting_type="dart", verbose=-1)
LGBMClassifier(n_estimators=10, boosting_type="rf", bagging_freq=1, bagging_fraction=0.7, verbose=-1)
LGBMClassifier(n_estimators=10, data_sample_strategy="goss", verbose=-1)
LGBMClassifier(n_estimators=10, linear_tree=True, verbose=-1)
LGBMClassifier(n_estimators=10, extra_trees=True, class_weight="balanced", verbose=-1)
XGBClassifier(n_estimators=10)
XGBClassifier(n_estimators=10, booster="dart", rate_drop=0.3)
XGBClassifier(n_estimators=10, base_score=0.3, max_leaves=8, grow_policy="lossguide")
XGBClassifier(n_estimators=10, booster="gblinear")
XGBClassifier(n_estimators=10, tree_method="exact")
XGBRFClassifier(n_estimators=10)
CatBoostClassifier(iterations=10, verbose=0, allow_writing_files=False)
CatBoostClassifier(iterations=10, grow_policy="Depthwise", verbose=0, allow_writing_files=False)
CatBoostClassifier(iterations=10, grow_policy="Lossguide", verbose=0, allow_writing_files=False)
VotingClassifier([("a", LGBMClassifier(n_estimators=5, verbose=-1)), ("b", LogisticRegression())], voting="soft")
make_pipeline(StandardScaler(), XGBClassifier(n_estimators=5))
CalibratedClassifierCV(XGBClassifier(n_estimators=5), cv=2)
""",
    "binary": """
LGBMRegressor(n_estimators=8, objective="binary", verbose=-1)
LGBMClassifier(n_estimators=8, objective=lambda y, p: (1 / (1 + np.exp(-p)) - y, np.full_like(p, 0.2)), verbose=-1)
LGBMClassifier(n_estimators=10, objective="cross_entropy_lambda", verbose=-1)
OneVsRestClassifier(XGBClassifier(n_estimators=5))
CatBoostClassifier(iterations=10, loss_function="Focal:focal_alpha=0.3;focal_gamma=2", verbose=0, allow_writing_files=False)
LGBMClassifier(n_estimators=10, objective="cross_entropy", verbose=-1)
LGBMClassifier(n_estimators=10, sigmoid=2.0, is_unbalance=True, verbose=-1)
XGBClassifier(n_estimators=10, objective="binary:logitraw")
XGBClassifier(n_estimators=10, objective="binary:hinge")
XGBClassifier(n_estimators=10, scale_pos_weight=3.0)
CatBoostClassifier(iterations=10, loss_function="CrossEntropy", verbose=0, allow_writing_files=False)
""",
    "three": """
OneVsOneClassifier(XGBClassifier(n_estimators=5))
OutputCodeClassifier(LGBMClassifier(n_estimators=5, verbose=-1), random_state=0)
StackingClassifier([("a", XGBClassifier(n_estimators=5)), ("b", LGBMClassifier(n_estimators=5, verbose=-1))], passthrough=True, cv=2)
CalibratedClassifierCV(LGBMClassifier(n_estimators=5, verbose=-1), method="isotonic", cv=2)
BaggingClassifier(CatBoostClassifier(iterations=5, verbose=0, allow_writing_files=False), n_estimators=2, max_features=0.5, random_state=0)
XGBClassifier(n_estimators=5, num_parallel_tree=3, subsample=0.6)
LGBMClassifier(n_estimators=10, objective="multiclassova", verbose=-1)
XGBClassifier(n_estimators=10, objective="multi:softmax")
XGBClassifier(n_estimators=10, multi_strategy="multi_output_tree")
CatBoostClassifier(iterations=10, loss_function="MultiClassOneVsAll", verbose=0, allow_writing_files=False)
""",
    "words": """
LGBMClassifier(n_estimators=10, verbose=-1)
CatBoostClassifier(iterations=10, verbose=0, allow_writing_files=False)
""",
    "number": """
CatBoostRegressor(iterations=10, loss_function="LogLinQuantile", verbose=0, allow_writing_files=False)
CatBoostRegressor(iterations=10, loss_function="MultiQuantile:alpha=0.1,0.5,0.9", verbose=0, allow_writing_files=False)
CatBoostRegressor(iterations=10, loss_function="Huber:delta=1", verbose=0, allow_writing_files=False)
LGBMRegressor(n_estimators=10, objective=lambda y, p: (p - y, np.ones_like(y)), verbose=-1)
XGBRegressor(n_estimators=10, objective=lambda y, p: (p - y, np.ones_like(y)))
LGBMRegressor(n_estimators=10, verbose=-1)
LGBMRegressor(n_estimators=10, objective="l1", verbose=-1)
LGBMRegressor(n_estimators=10, objective="huber", verbose=-1)
LGBMRegressor(n_estimators=10, objective="fair", verbose=-1)
LGBMRegressor(n_estimators=10, objective="quantile", alpha=0.7, verbose=-1)
LGBMRegressor(n_estimators=10, linear_tree=True, verbose=-1)
LGBMRegressor(n_estimators=10, linear_tree=True, boosting_type="dart", verbose=-1)
LGBMRegressor(n_estimators=10, boosting_type="rf", bagging_freq=1, bagging_fraction=0.7, verbose=-1)
LGBMRegressor(n_estimators=10, reg_sqrt=True, verbose=-1)
LGBMRegressor(n_estimators=10, zero_as_missing=True, verbose=-1)
LGBMRegressor(n_estimators=10, use_missing=False, verbose=-1)
LGBMRegressor(n_estimators=10, monotone_constraints=[1, 0, 0, 0], verbose=-1)
XGBRegressor(n_estimators=10)
XGBRegressor(n_estimators=10, objective="reg:absoluteerror")
XGBRegressor(n_estimators=10, objective="reg:pseudohubererror")
XGBRegressor(n_estimators=10, objective="reg:quantileerror", quantile_alpha=0.7)
XGBRegressor(n_estimators=10, objective="reg:quantileerror", quantile_alpha=np.array([0.2, 0.8]))
XGBRegressor(n_estimators=10, booster="dart", rate_drop=0.3, one_drop=True)
XGBRegressor(n_estimators=10, booster="gblinear")
XGBRegressor(n_estimators=10, base_score=2.0, monotone_constraints=(1, 0, 0, 0))
XGBRegressor(n_estimators=10, missing=0.0)
XGBRFRegressor(n_estimators=10)
CatBoostRegressor(iterations=10, verbose=0, allow_writing_files=False)
CatBoostRegressor(iterations=10, loss_function="MAE", verbose=0, allow_writing_files=False)
CatBoostRegressor(iterations=10, loss_function="Quantile:alpha=0.7", verbose=0, allow_writing_files=False)
CatBoostRegressor(iterations=10, loss_function="RMSEWithUncertainty", verbose=0, allow_writing_files=False)
CatBoostRegressor(iterations=10, grow_policy="Lossguide", verbose=0, allow_writing_files=False)
""",
    "above zero": """
LGBMRegressor(n_estimators=10, objective="poisson", verbose=-1)
LGBMRegressor(n_estimators=10, objective="gamma", verbose=-1)
LGBMRegressor(n_estimators=10, objective="tweedie", verbose=-1)
LGBMRegressor(n_estimators=10, objective="mape", verbose=-1)
XGBRegressor(n_estimators=10, objective="count:poisson")
XGBRegressor(n_estimators=10, objective="reg:gamma")
XGBRegressor(n_estimators=10, objective="reg:tweedie", tweedie_variance_power=1.3)
XGBRegressor(n_estimators=10, objective="reg:squaredlogerror")
XGBRegressor(n_estimators=10, objective="survival:cox")
CatBoostRegressor(iterations=10, loss_function="Poisson", verbose=0, allow_writing_files=False)
CatBoostRegressor(iterations=10, loss_function="Tweedie:variance_power=1.5", verbose=0, allow_writing_files=False)
""",
    "unit": """
LGBMRegressor(n_estimators=10, objective="cross_entropy", verbose=-1)
LGBMRegressor(n_estimators=10, objective="cross_entropy_lambda", verbose=-1)
XGBRegressor(n_estimators=10, objective="reg:logistic")
CatBoostRegressor(iterations=10, loss_function="LogCosh", verbose=0, allow_writing_files=False)
""",
    "several numbers": """
XGBRegressor(n_estimators=10)
XGBRegressor(n_estimators=10, multi_strategy="multi_output_tree")
CatBoostRegressor(iterations=10, loss_function="MultiRMSE", verbose=0, allow_writing_files=False)
MultiOutputRegressor(LGBMRegressor(n_estimators=5, verbose=-1))
""",
    "several labels": """
OneVsRestClassifier(XGBClassifier(n_estimators=5))
OneVsRestClassifier(LGBMClassifier(n_estimators=5, verbose=-1))
ClassifierChain(CatBoostClassifier(iterations=5, verbose=0, allow_writing_files=False))
MultiOutputClassifier(XGBClassifier(n_estimators=5)) -> predict, predict_proba
XGBClassifier(n_estimators=10)
CatBoostClassifier(iterations=10, loss_function="MultiLogloss", verbose=0, allow_writing_files=False)
MultiOutputClassifier(LGBMClassifier(n_estimators=5, verbose=-1))
""",
    "missing three": """
OutputCodeClassifier(XGBClassifier(n_estimators=5), code_size=2, random_state=0)
XGBClassifier(n_estimators=10, booster="gblinear")
""",
    "missing binary": """
LGBMClassifier(n_estimators=10, verbose=-1)
LGBMClassifier(n_estimators=10, zero_as_missing=True, verbose=-1)
LGBMClassifier(n_estimators=10, linear_tree=True, verbose=-1)
XGBClassifier(n_estimators=10)
CatBoostClassifier(iterations=10, verbose=0, allow_writing_files=False)
CatBoostClassifier(iterations=10, nan_mode="Max", verbose=0, allow_writing_files=False)
""",
    "missing number": """
LGBMRegressor(n_estimators=10, verbose=-1)
LGBMRegressor(n_estimators=10, linear_tree=True, verbose=-1)
XGBRegressor(n_estimators=10)
CatBoostRegressor(iterations=10, verbose=0, allow_writing_files=False)
""",
    "counts three": """
LGBMClassifier(n_estimators=10, categorical_feature=[0, 2], min_data_per_group=5, verbose=-1)
LGBMClassifier(n_estimators=10, categorical_feature=[0, 2], max_cat_to_onehot=12, verbose=-1)
XGBClassifier(n_estimators=10, enable_categorical=True, feature_types=["c", "q", "c", "q"])
""",
    "counts number": """
make_pipeline(OneHotEncoder(handle_unknown="ignore"), XGBRegressor(n_estimators=8))
make_pipeline(OneHotEncoder(sparse_output=False, handle_unknown="ignore"), XGBRegressor(n_estimators=8))
make_pipeline(ColumnTransformer([("o", OneHotEncoder(handle_unknown="ignore"), [0, 1, 2])], remainder="passthrough"), XGBRegressor(n_estimators=8))
make_pipeline(KBinsDiscretizer(3), XGBRegressor(n_estimators=8, missing=1.0))
LGBMRegressor(n_estimators=10, categorical_feature=[0, 1], min_data_per_group=5, linear_tree=True, verbose=-1)
XGBRegressor(n_estimators=10, enable_categorical=True, feature_types=["c", "q", "c", "c"], max_cat_to_onehot=1)
XGBRegressor(n_estimators=10, enable_categorical=True, feature_types=["c", "q", "c", "c"], max_cat_to_onehot=20)
""",
    "ranked": """
LGBMRanker(n_estimators=10, min_child_samples=5, verbose=-1)
XGBRanker(n_estimators=10)
CatBoostRanker(iterations=10, verbose=0, allow_writing_files=False)
""",
    "table binary": """
CatBoostClassifier(iterations=10, cat_features=[0], verbose=0, allow_writing_files=False)
CatBoostClassifier(iterations=10, cat_features=[0], one_hot_max_size=5, verbose=0, allow_writing_files=False)
CatBoostClassifier(iterations=10, cat_features=[0], grow_policy="Depthwise", verbose=0, allow_writing_files=False)
""",
    "table three": """
CatBoostClassifier(iterations=10, cat_features=[0], verbose=0, allow_writing_files=False)
""",
    "table number": """
CatBoostRegressor(iterations=10, cat_features=[0], simple_ctr=["Counter"], combinations_ctr=["Counter"], verbose=0, allow_writing_files=False)
CatBoostRegressor(iterations=10, cat_features=[0], simple_ctr=["Borders:TargetBorderCount=3"], verbose=0, allow_writing_files=False)
CatBoostRegressor(iterations=10, cat_features=[0], simple_ctr=["BinarizedTargetMeanValue"], verbose=0, allow_writing_files=False)
CatBoostRegressor(iterations=10, cat_features=[0], verbose=0, allow_writing_files=False)
""",
    "texts binary": """
make_pipeline(TfidfVectorizer(), XGBClassifier(n_estimators=8))
make_pipeline(CountVectorizer(max_features=8), MaxAbsScaler(), XGBClassifier(n_estimators=8, booster="dart"))
make_pipeline(TfidfVectorizer(), SelectKBest(k=6), XGBClassifier(n_estimators=8, booster="gblinear"))
make_pipeline(FeatureUnion([("a", TfidfVectorizer()), ("b", CountVectorizer(analyzer="char"))]), XGBClassifier(n_estimators=8))
make_pipeline(TfidfVectorizer(), VotingClassifier([("a", XGBClassifier(n_estimators=5)), ("b", LogisticRegression())]))
make_pipeline(TfidfVectorizer(), LGBMClassifier(n_estimators=8, min_child_samples=5, verbose=-1))
make_pipeline(TfidfVectorizer(), CatBoostClassifier(iterations=8, verbose=0, allow_writing_files=False))
""",
}
